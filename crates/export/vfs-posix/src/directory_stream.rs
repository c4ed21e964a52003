//! Entries that `getdents64` has read ahead, and the position after them.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use rustix::fs::{self, RawDir, SeekFrom};
use rustix::io::Errno;
use vouch_vfs::{Caller, Error, FileId, Result};

use crate::errno::{OrError, error};
use crate::node::Node;

pub(crate) const COOKIE_OFFSET: u64 = 3;

/// Some hundred entries, about a 64 KiB reply.
const BUFFER_LEN: usize = 16 << 10;

#[derive(Default)]
pub(crate) struct Streams(pub(crate) Vec<Stream>);

pub(crate) struct Stream {
    pub(crate) fd: OwnedFd,
    pub(crate) directory: FileId,
    pub(crate) caller: Caller,
    pub(crate) cookie: u64,
    pub(crate) ahead: Vec<Entry>,
    pub(crate) given: usize,
    pub(crate) change: u64,
    pub(crate) fsid: u64,
}

pub(crate) struct Entry {
    pub(crate) name: CString,
    pub(crate) cookie: u64,
    pub(crate) inode: u64,
    pub(crate) kind: fs::FileType,
}

impl Stream {
    pub(crate) fn seek(&mut self, cookie: u64) -> Result<()> {
        self.ahead.clear();
        self.given = 0;
        self.cookie = cookie;
        fs::seek(&self.fd, SeekFrom::Start(cookie - COOKIE_OFFSET)).map_err(
            |errno| match errno {
                Errno::INVAL => Error::BadCookie,
                errno => error(errno),
            },
        )?;
        Ok(())
    }

    /// True if there were more entries.
    pub(crate) fn read(&mut self, node: &Node) -> Result<bool> {
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
                    self.ahead.push(Entry {
                        name: entry.file_name().to_owned(),
                        cookie,
                        inode: entry.ino(),
                        kind: entry.file_type(),
                    });
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
