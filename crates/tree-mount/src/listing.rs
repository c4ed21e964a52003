//! Directory listings: readdir and readdirplus, over pages of the directory's B+-tree.
//!
//! A listing goes on in the version of the directory in which it began, as long as that is
//! remembered; what it hands out as nodes is always of the revision in force.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use vouch_tree::{DirEntry, Inode};
use vouch_tree_client::Position;

use crate::cookie::Cookie;
use crate::core::{Core, Shape, is_opaque};
use crate::error::OpError;
use crate::number::NodeId;
use crate::table::{Moved, Owner as _};
use crate::volume::{Volume, tag_of};

/// A reply to be filled.
pub(crate) struct Sink {
    to: Reply,
    added: usize,
}

enum Reply {
    /// Names, numbers and types.
    Plain(ReplyDirectory),
    /// The same with attributes, each counting as a lookup.
    Plus(ReplyDirectoryPlus),
}

impl Sink {
    pub(crate) fn plain(reply: ReplyDirectory) -> Self {
        Self { to: Reply::Plain(reply), added: 0 }
    }

    pub(crate) fn plus(reply: ReplyDirectoryPlus) -> Self {
        Self { to: Reply::Plus(reply), added: 0 }
    }

    /// Whether entries come with attributes, and count as lookups.
    pub(crate) const fn is_plus(&self) -> bool {
        matches!(self.to, Reply::Plus(_))
    }

    /// Adds an entry; true if there is no room for it.
    pub(crate) fn add(&mut self, attr: &FileAttr, next: Cookie, name: &[u8], left: Duration) -> bool {
        let name = OsStr::from_bytes(name);
        let full = match &mut self.to {
            Reply::Plain(reply) => reply.add(attr.ino, next.offset(), attr.kind, name),
            Reply::Plus(reply) => reply.add(attr.ino, next.offset(), name, &left, attr, Generation(0)),
        };
        self.added += usize::from(!full);
        full
    }

    /// Adds "." and ".." as far as `at` is before them; true if there is no room. The kernel takes
    /// no lookups of them.
    pub(crate) fn dots(&mut self, at: &mut Cookie, tag: u32, directory: &FileAttr, parent: NodeId) -> bool {
        if *at == Cookie::Start {
            if self.add(directory, Cookie::AfterSelf, b".", Duration::ZERO) {
                return true;
            }
            *at = Cookie::AfterSelf;
        }
        if *at == Cookie::AfterSelf {
            *at = Cookie::Entry { tag, number: 0 };
            return self.add(&FileAttr { ino: INodeNo(parent.0), ..*directory }, *at, b"..", Duration::ZERO);
        }
        false
    }

    /// Whether anything was added.
    pub(crate) const fn has_entries(&self) -> bool {
        self.added > 0
    }

    /// Sends what was added.
    pub(crate) fn send(self) {
        match self.to {
            Reply::Plain(reply) => reply.ok(),
            Reply::Plus(reply) => reply.ok(),
        }
    }

    /// Sends an error.
    pub(crate) fn fail(self, errno: Errno) {
        match self.to {
            Reply::Plain(reply) => reply.error(errno),
            Reply::Plus(reply) => reply.error(errno),
        }
    }
}

/// Why no more entries go in.
enum Stop {
    Full,
    Moved,
}

impl Core {
    /// Fills `sink` from a directory's entries after `offset`; leaves it empty at the end.
    pub(crate) async fn list(self: &Arc<Self>, id: NodeId, offset: u64, sink: &mut Sink) -> Result<(), OpError> {
        if let (Shape::Namespace(namespace), NodeId::ROOT) = (&self.shape, id) {
            return namespace.list(self, offset, sink);
        }
        for _ in 0..LOOKS_MAX {
            let (view, volume) = self.view(id)?;
            let left = volume.fresh(self.patience()).await?;
            if !view.inode.is_directory() {
                return Err(OpError::NotDirectory);
            }
            let mut at = Cookie::from_offset(offset);
            let current = tag_of(&view.inode);
            if sink.dots(&mut at, current, &self.attributes_of(id, &view.inode), view.parent) {
                return Ok(());
            }
            let Cookie::Entry { tag, number } = at else { return Ok(()) };
            let done = if is_opaque(&view.inode) {
                self.list_referenced(id, &view.inode, &volume, number, left, sink).await?
            } else {
                let older = (tag != current).then(|| volume.older(id, tag)).flatten();
                self.list_pages(id, &view.inode, older, &volume, number, left, sink).await?
            };
            if done.is_ok() || sink.has_entries() {
                return Ok(());
            }
        }
        Err(OpError::Unfit("the directory changes faster than it can be read"))
    }

    #[allow(clippy::too_many_arguments, reason = "one loop of one caller")]
    async fn list_pages(
        &self,
        id: NodeId,
        current: &Arc<Inode>,
        older: Option<Arc<Inode>>,
        volume: &Arc<Volume>,
        mut number: u64,
        left: Duration,
        sink: &mut Sink,
    ) -> Result<Result<(), Moved>, OpError> {
        let directory = older.as_ref().unwrap_or(current);
        let tag = tag_of(directory);
        loop {
            let page = match volume.tree().try_list(directory, Position::Number(number)) {
                Some(page) => page?,
                // What there is goes out now; the client reads ahead meanwhile.
                None if sink.has_entries() => return Ok(Ok(())),
                None => volume.tree().list(directory, Position::Number(number)).await?,
            };
            let filled = match &older {
                None => self.fill(id, current, volume, page.entries(), (tag, page.number), left, sink),
                Some(_) => {
                    let mut filled = Ok(());
                    for (i, entry) in page.entries().iter().enumerate() {
                        // The name as it is now; one that is no more is left out.
                        let name = entry.name.as_bytes();
                        let Some(now) = volume.tree().lookup(current, name).await? else { continue };
                        filled = self.fill(id, current, volume, std::slice::from_ref(&*now), (tag, page.number + i as u64), left, sink);
                        if filled.is_err() {
                            break;
                        }
                    }
                    filled
                }
            };
            match filled {
                Err(Stop::Full) => return Ok(Ok(())),
                Err(Stop::Moved) => return Ok(Err(Moved)),
                Ok(()) if page.last || page.entries().is_empty() => return Ok(Ok(())),
                Ok(()) => number = page.number + page.entries().len() as u64,
            }
        }
    }

    async fn list_referenced(
        &self,
        id: NodeId,
        directory: &Arc<Inode>,
        volume: &Arc<Volume>,
        number: u64,
        left: Duration,
        sink: &mut Sink,
    ) -> Result<Result<(), Moved>, OpError> {
        let skip = usize::try_from(number).unwrap_or(usize::MAX);
        for (i, name) in volume.referenced(id).iter().enumerate().skip(skip) {
            let Some(entry) = volume.tree().lookup(directory, name).await? else { continue };
            let at = (tag_of(directory), i as u64);
            match self.fill(id, directory, volume, std::slice::from_ref(&*entry), at, left, sink) {
                Ok(()) => {}
                Err(Stop::Full) => return Ok(Ok(())),
                Err(Stop::Moved) => return Ok(Err(Moved)),
            }
        }
        Ok(Ok(()))
    }

    /// Adds entries of the directory's present version, the first of which has number `at.1` in
    /// version `at.0`.
    #[allow(clippy::too_many_arguments, reason = "one loop of one caller")]
    fn fill(
        &self,
        id: NodeId,
        directory: &Arc<Inode>,
        volume: &Volume,
        entries: &[DirEntry],
        at: (u32, u64),
        left: Duration,
        sink: &mut Sink,
    ) -> Result<(), Stop> {
        let next = |i: usize| Cookie::Entry { tag: at.0, number: at.1 + i as u64 + 1 };
        if !sink.is_plus() {
            for (i, DirEntry { name, inode }) in entries.iter().enumerate() {
                let child = volume.numbering().of_file(id, name.as_bytes(), inode, 0);
                if sink.add(&self.attributes_of(child, inode), next(i), name.as_bytes(), left) {
                    return Err(Stop::Full);
                }
            }
            return Ok(());
        }
        let Ok(mut entering) = self.table.enter(id, directory) else { return Err(Stop::Moved) };
        for (i, DirEntry { name, inode }) in entries.iter().enumerate() {
            let Some(child) = entering.insert(name.as_bytes(), inode) else { continue };
            if sink.add(&self.attributes_of(child, inode), next(i), name.as_bytes(), left) {
                entering.take_back(child);
                return Err(Stop::Full);
            }
        }
        Ok(())
    }
}

/// A directory that moves on so often between reading and entering is being published faster than
/// it is read.
const LOOKS_MAX: usize = 16;
