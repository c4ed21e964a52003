//! READDIR: `getdents64`, gone on with where it stopped.
//!
//! Cookies are the kernel's own positions, 3 added (NFS reserves 0 to 2). File systems keep them
//! good for entries that stay, so that a stream can be opened anew at any of them. Streams of
//! listings that are under way are kept with what was read ahead, which is used only if the
//! directory has not changed meanwhile.

use std::ffi::CString;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use vouch_vfs::{Attributes, Caller, DirectoryEntry, Error, FileId, FileType, Patience, Result};

use crate::attributes::stat_name;
use crate::errno::{OrError, error};
use crate::export::Inner;
use crate::node::Node;
use crate::{access, ffi, handle, identity};

/// Added to the kernel's positions.
const COOKIE_OFFSET: u64 = 3;

/// Bytes asked from the kernel at a time: some hundred entries, about as many as an answer of 64
/// KiB holds.
const BUFFER_LEN: usize = 16 << 10;

/// Streams kept: one a listing under way, each a descriptor and its buffer.
const STREAM_COUNT_MAX: usize = 64;

/// Entries whose files are looked at together, between two looks at the directory.
const GROUP_LEN: usize = 16;

/// Listings under way, the latest last.
#[derive(Default)]
pub(crate) struct Streams(Vec<Stream>);

struct Stream {
    fd: OwnedFd,
    directory: FileId,
    caller: Caller,
    /// The cookie of the entry before the next.
    cookie: u64,
    /// What was read ahead, and how much of it was given out.
    ahead: Vec<Entry>,
    given: usize,
    /// The directory's change attribute when it was read.
    change: u64,
    /// The directory's file system, then.
    fsid: u64,
}

struct Entry {
    name: CString,
    cookie: u64,
    inode: u64,
    kind: fs::FileType,
}

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
        let ended = self.give(caller, &node, &mut stream, with_files, each)?;
        if !ended {
            let mut streams = self.streams.lock();
            if streams.0.len() == STREAM_COUNT_MAX {
                streams.0.remove(0);
            }
            streams.0.push(stream);
        }
        Ok(ended)
    }

    /// The stream that stopped here, if it may still be used, or a new one.
    fn stream(&self, caller: &Caller, node: &Arc<Node>, cookie: u64) -> Result<Stream> {
        const READ: u8 = 4;
        let kept = if cookie == 0 {
            None
        } else {
            let mut streams = self.streams.lock();
            let at = streams.0.iter().rposition(|kept| kept.cookie == cookie && kept.directory == node.id && kept.caller == *caller);
            at.map(|at| streams.0.remove(at))
        };
        if let Some(mut kept) = kept {
            access::demand(node, READ)?;
            if kept.change != node.change() || !node.mount.fine_times {
                kept.seek(cookie)?;
            }
            return Ok(kept);
        }
        let fd = self.reopen(node.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY).or_error()?;
        let mut stream = Stream { fd, directory: node.id, caller: caller.clone(), cookie, ahead: Vec::new(), given: 0, change: 0, fsid: 0 };
        if cookie != 0 {
            stream.seek(cookie)?;
        }
        Ok(stream)
    }

    /// Gives entries out until `each` has enough. Whether it is the end.
    fn give(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        stream: &mut Stream,
        with_files: bool,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        loop {
            if stream.given == stream.ahead.len() && !stream.read(node)? {
                return Ok(true);
            }
            let group = &stream.ahead[stream.given..(stream.given + GROUP_LEN).min(stream.ahead.len())];
            let mut files = if with_files {
                // `each` may have made the thread somebody else.
                identity::assume(caller)?;
                self.files(node, group)
            } else {
                Vec::new()
            }
            .into_iter();
            let mut given = 0;
            for entry in group {
                let file = files.next();
                // Gone since it was read from the directory.
                if !matches!(file, Some(Err(Error::NotFound | Error::Stale))) {
                    // Stacked file systems list other numbers than files show. A mount point's is that of the directory
                    // below.
                    let file_number = match &file {
                        Some(Ok((_, attributes))) if attributes.fsid == stream.fsid => attributes.file_number,
                        _ => entry.inode,
                    };
                    let entry = DirectoryEntry { name: entry.name.to_bytes(), cookie: entry.cookie, file_number, file };
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

    /// Identity and attributes of each entry. They are got by two calls, between which the name can
    /// become another file's; so if the directory has changed meanwhile, each file is opened
    /// and looked at by its descriptor.
    fn files(&self, directory: &Arc<Node>, group: &[Entry]) -> Vec<Found> {
        let found = self.files_themselves(directory, group);
        // Where another file system is mounted that can't be entered, what lies below it shows: the rest of
        // a listing is not to fail for it.
        let or_covered = |(found, entry): (Found, &Entry)| match found {
            Err(Error::Access) => match self.covered_entry(directory, &entry.name, entry.inode, entry.kind) {
                Some(covered) => Ok((self.covered_id(&covered)?, self.covered_attributes(&covered, Patience::Any)?)),
                None => Err(Error::Access),
            },
            found => found,
        };
        found.into_iter().zip(group).map(or_covered).collect()
    }

    fn files_themselves(&self, directory: &Arc<Node>, group: &[Entry]) -> Vec<Found> {
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
        let id = handle::id_of_handle(directory.mount.id_fsid(), &handle).ok_or(Error::NotSupported)?;
        self.note(&id, directory, &entry.name);
        if let Some(node) = self.nodes.get(&id) {
            return Ok((id, node.attributes()?));
        }
        let stat = stat_name(directory.as_fd(), &entry.name).or_error()?;
        Ok((id, crate::attributes::attributes(&stat, &directory.mount, 0)?))
    }

    fn file_by_descriptor(&self, directory: &Arc<Node>, entry: &Entry) -> Found {
        let (node, stat) = self.child(directory, &entry.name, false)?;
        Ok((node.id, node.attributes_of(&stat)?))
    }
}

impl Stream {
    /// Forgets what was read ahead, and goes on after the cookie.
    fn seek(&mut self, cookie: u64) -> Result<()> {
        self.ahead.clear();
        self.given = 0;
        self.cookie = cookie;
        fs::seek(&self.fd, SeekFrom::Start(cookie - COOKIE_OFFSET)).map_err(|errno| match errno {
            Errno::INVAL => Error::BadCookie,
            errno => error(errno),
        })?;
        Ok(())
    }

    /// Reads ahead. Whether there was any more.
    fn read(&mut self, node: &Node) -> Result<bool> {
        self.ahead.clear();
        self.given = 0;
        let attributes = node.attributes()?;
        (self.change, self.fsid) = (attributes.change, attributes.fsid);
        let mut buffer = Vec::with_capacity(BUFFER_LEN);
        while self.ahead.is_empty() {
            let mut listing = RawDir::new(&self.fd, buffer.spare_capacity_mut());
            let mut any = false;
            while let Some(entry) = listing.next() {
                let entry = entry.or_error()?;
                any = true;
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    let cookie = entry.next_entry_cookie().wrapping_add(COOKIE_OFFSET);
                    self.ahead.push(Entry { name: entry.file_name().to_owned(), cookie, inode: entry.ino(), kind: entry.file_type() });
                }
                if listing.is_buffer_empty() {
                    break;
                }
            }
            if !any {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
