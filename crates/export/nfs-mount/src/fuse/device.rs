//! /dev/fuse: reading requests, writing replies and notices.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::abi::{NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, OUT_HEADER_LEN};
use super::reply::Record;

/// Clones share the descriptor.
#[derive(Debug, Clone)]
pub(crate) struct Device(Arc<AsyncFd<OwnedFd>>);

impl Device {
    /// Needs a tokio runtime with I/O.
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        #[expect(
            deprecated,
            reason = "an owned descriptor meets the conditions of its successor, which is unsafe"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Self(Arc::new(descriptor)))
    }

    /// The next request. `None` after an unmount; ECONNABORTED after an abort.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(self.0.get_ref(), &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // An unmount is only an error to poll(2).
                Err(Errno::AGAIN) => {
                    self.0.ready(Interest::READABLE | Interest::ERROR).await?.clear_ready();
                }
                // The request was interrupted before it was read.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// False if the kernel does not wait for this reply: it was answered before, or the mount has
    /// ended.
    pub(crate) fn reply(&self, unique: u64, body: &[u8]) -> bool {
        self.send(unique, 0, &[body])
    }

    pub(crate) fn error(&self, unique: u64, errno: Errno) -> bool {
        self.send(unique, -errno.raw_os_error(), &[])
    }

    /// The kernel drops its attributes of the node.
    pub(crate) fn invalidate_attributes(&self, node: u64) {
        self.notify(NOTIFY_INVAL_INODE, Record::default().u64(node).u64(u64::MAX).u64(0));
    }

    /// The kernel drops pages and attributes. May wait for a page that a request holds.
    pub(crate) fn invalidate_pages(&self, node: u64) {
        self.notify(NOTIFY_INVAL_INODE, Record::default().u64(node).u64(0).u64(0));
    }

    /// The kernel forgets the name and those below it. May wait for a request in the directory.
    pub(crate) fn invalidate_name(&self, directory: u64, name: &[u8]) {
        let record = Record::default().u64(directory).u32(name.len() as u32).u32(0);
        self.notify(NOTIFY_INVAL_ENTRY, record.raw(name).zeros(1));
    }

    fn notify(&self, code: i32, record: Record) {
        // ENOENT: the kernel does not know the node.
        self.send(0, code, &[record.as_bytes()]);
    }

    fn send(&self, unique: u64, error: i32, parts: &[&[u8]]) -> bool {
        let len: usize = OUT_HEADER_LEN + parts.iter().map(|part| part.len()).sum::<usize>();
        let head = Record::default().u32(len as u32).u32(error.cast_unsigned()).u64(unique);
        let slices: Vec<IoSlice<'_>> = std::iter::once(head.as_bytes())
            .chain(parts.iter().copied())
            .filter(|part| !part.is_empty())
            .map(IoSlice::new)
            .collect();
        loop {
            match rustix::io::writev(self.0.get_ref(), &slices) {
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::debug!(unique, "a reply that the kernel does not take: {error}");
                    return false;
                }
            }
        }
    }
}
