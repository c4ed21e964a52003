//! READDIR by `getdents64`, resumable.
//!
//! Cookies are kernel positions plus 3 (NFS reserves 0 to 2), valid for remaining entries, so a
//! stream can be reopened at any position. Streams are kept with entries read ahead, which count
//! only if the directory is unchanged.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use vouch_vfs::rights::READ;
use vouch_vfs::{
    Attributes, Blocking, Caller, DirectoryEntry, Error, FileId, FileType, Result, mutant,
};

use crate::attributes::stat_name;
use crate::directory_stream::{COOKIE_OFFSET, Entry, Stream};
use crate::errno::OrError;
use crate::export::Inner;
use crate::node::Node;
use crate::{access, ffi, handle, identity};

/// Each has a descriptor and a buffer.
const STREAM_COUNT_MAX: usize = 64;

const GROUP_LEN: usize = 16;

type Found = Result<(FileId, Attributes)>;

impl Inner {
    pub(crate) fn list(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        let node = self.node(directory)?;
        if node.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        if (1..COOKIE_OFFSET).contains(&cookie) {
            return Err(Error::BadCookie);
        }
        identity::assume(caller)?;
        let mut stream = self.stream(caller, &node, cookie)?;
        let ended = self.deliver(caller, &node, &mut stream, with_files, each)?;
        if !ended {
            let mut streams = self.streams.lock();
            if streams.0.len() == STREAM_COUNT_MAX {
                streams.0.remove(0);
            }
            streams.0.push(stream);
        }
        Ok(ended)
    }

    fn stream(&self, caller: &Caller, node: &Arc<Node>, cookie: u64) -> Result<Stream> {
        let kept = if cookie == 0 {
            None
        } else {
            let mut streams = self.streams.lock();
            let at = streams.0.iter().rposition(|kept| {
                kept.cookie == cookie && kept.directory == node.id && kept.caller == *caller
            });
            at.map(|at| streams.0.remove(at))
        };
        if let Some(mut kept) = kept {
            access::require(node, READ)?;
            if kept.change != node.change() || !node.mount.fine_times {
                kept.seek(cookie)?;
            }
            return Ok(kept);
        }
        let fd = self.reopen(node.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY).or_error()?;
        let mut stream = Stream {
            fd,
            directory: node.id,
            caller: caller.clone(),
            cookie,
            ahead: Vec::new(),
            given: 0,
            change: 0,
            fsid: 0,
        };
        if cookie != 0 {
            stream.seek(cookie)?;
        }
        Ok(stream)
    }

    /// Delivers entries until `each` has enough. True at the end of the directory.
    fn deliver(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        stream: &mut Stream,
        with_files: bool,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        let mut shifts = stream.cookie != 0 && mutant("readdir-cookie-shifts");
        loop {
            if stream.given == stream.ahead.len() && !stream.read(node)? {
                return Ok(true);
            }
            if std::mem::take(&mut shifts) {
                stream.given += 1;
                continue;
            }
            let group =
                &stream.ahead[stream.given..(stream.given + GROUP_LEN).min(stream.ahead.len())];
            let mut files = if with_files {
                // `each` may have changed the thread's identity.
                identity::assume(caller)?;
                self.files(node, group)
            } else {
                Vec::new()
            }
            .into_iter();
            let mut given = 0;
            for entry in group {
                let file = files.next();
                if !matches!(file, Some(Err(Error::NotFound | Error::Stale))) {
                    // Stacked file systems list other numbers than files have. A mount point has
                    // the number of its covered directory.
                    let file_number = match &file {
                        Some(Ok((_, attributes))) if attributes.fsid == stream.fsid => {
                            attributes.file_number
                        }
                        _ => entry.inode & node.mount.inode_mask,
                    };
                    let entry = DirectoryEntry {
                        name: entry.name.to_bytes(),
                        cookie: entry.cookie,
                        file_number,
                        file,
                    };
                    if each(entry).is_break() {
                        stream.given += given;
                        return Ok(false);
                    }
                }
                given += 1;
                stream.cookie = entry.cookie;
            }
            stream.given += given;
        }
    }

    /// Two calls get them, between which the name may move to another file. If the directory
    /// changed meanwhile, each file is opened and checked by its descriptor.
    fn files(&self, directory: &Arc<Node>, group: &[Entry]) -> Vec<Found> {
        let found = self.files_by_descriptor(directory, group);
        // A mount point that cannot be crossed shows the covered directory instead of failing the
        // listing.
        let or_covered = |(found, entry): (Found, &Entry)| match found {
            Err(Error::Access) => {
                match self.covered_entry(directory, &entry.name, entry.inode, entry.kind) {
                    Some(covered) => Ok((
                        self.covered_id(&covered)?,
                        self.covered_attributes(&covered, Blocking::Allowed)?,
                    )),
                    None => Err(Error::Access),
                }
            }
            found => found,
        };
        found.into_iter().zip(group).map(or_covered).collect()
    }

    fn files_by_descriptor(&self, directory: &Arc<Node>, group: &[Entry]) -> Vec<Found> {
        if directory.mount.handles && directory.mount.fine_times {
            let before = directory.change();
            let files = group.iter().map(|entry| self.file_by_name(directory, entry)).collect();
            if directory.change() == before {
                return files;
            }
        }
        group.iter().map(|entry| self.file_by_descriptor(directory, entry)).collect()
    }

    fn file_by_name(&self, directory: &Arc<Node>, entry: &Entry) -> Found {
        let (handle, mount) = ffi::name_to_handle(directory.as_fd(), &entry.name).or_error()?;
        if mount != directory.mount.id {
            return self.file_by_descriptor(directory, entry);
        }
        let id =
            handle::id_of_handle(directory.mount.id_fsid(), &handle).ok_or(Error::NotSupported)?;
        self.note(&id, directory, &entry.name);
        if let Some(node) = self.nodes.get(&id) {
            return Ok((id, node.attributes()?));
        }
        let stat = stat_name(directory.as_fd(), &entry.name).or_error()?;
        Ok((id, crate::attributes::attributes(&stat, &directory.mount, 0)?))
    }

    fn file_by_descriptor(&self, directory: &Arc<Node>, entry: &Entry) -> Found {
        let (node, stat) = self.child(directory, &entry.name, false, Blocking::Allowed)?;
        Ok((node.id, node.attributes_of(&stat)?))
    }
}
