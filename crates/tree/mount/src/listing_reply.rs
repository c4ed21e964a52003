use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use vouch_tree::inode_number::InodeNumber as NodeId;

use crate::cookie::Cookie;

pub(crate) struct ListingReply {
    to: Reply,
    added: usize,
}

enum Reply {
    Plain(ReplyDirectory),
    Plus(ReplyDirectoryPlus),
}

impl ListingReply {
    pub(crate) fn plain(reply: ReplyDirectory) -> Self {
        Self { to: Reply::Plain(reply), added: 0 }
    }

    pub(crate) fn plus(reply: ReplyDirectoryPlus) -> Self {
        Self { to: Reply::Plus(reply), added: 0 }
    }

    pub(crate) const fn is_plus(&self) -> bool {
        matches!(self.to, Reply::Plus(_))
    }

    pub(crate) fn add(
        &mut self,
        attr: &FileAttr,
        next: Cookie,
        name: &[u8],
        left: Duration,
    ) -> bool {
        let name = OsStr::from_bytes(name);
        let full = match &mut self.to {
            Reply::Plain(reply) => reply.add(attr.ino, next.offset(), attr.kind, name),
            Reply::Plus(reply) => {
                reply.add(attr.ino, next.offset(), name, &left, attr, Generation(0))
            }
        };
        self.added += usize::from(!full);
        full
    }

    pub(crate) fn dots(
        &mut self,
        at: &mut Cookie,
        tag: u32,
        directory: &FileAttr,
        parent: NodeId,
    ) -> bool {
        if *at == Cookie::Start {
            if self.add(directory, Cookie::AfterSelf, b".", Duration::ZERO) {
                return true;
            }
            *at = Cookie::AfterSelf;
        }
        if *at == Cookie::AfterSelf {
            *at = Cookie::Entry { tag, number: 0 };
            return self.add(
                &FileAttr { ino: INodeNo(parent.0), ..*directory },
                *at,
                b"..",
                Duration::ZERO,
            );
        }
        false
    }

    pub(crate) const fn has_entries(&self) -> bool {
        self.added > 0
    }

    pub(crate) fn send(self) {
        match self.to {
            Reply::Plain(reply) => reply.ok(),
            Reply::Plus(reply) => reply.ok(),
        }
    }

    pub(crate) fn fail(self, errno: Errno) {
        match self.to {
            Reply::Plain(reply) => reply.error(errno),
            Reply::Plus(reply) => reply.error(errno),
        }
    }
}
