//! Direct and uncached reads and writes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::export::Inner;
use crate::ffi::{self, ReadHow};
use crate::identity;
use crate::io_mode::with_aligned;
use crate::node::Node;

/// A second descriptor of an open file, with O_DIRECT. `None` where the file system refuses.
#[derive(Default)]
pub(crate) struct DirectFile(OnceLock<Option<OwnedFd>>);

impl DirectFile {
    fn get(&self, inner: &Inner, node: &Node, flags: OFlags) -> Option<&OwnedFd> {
        let open = || {
            let _as_root = identity::assume_root().ok()?;
            inner.reopen(node.as_fd(), flags | OFlags::DIRECT).ok()
        };
        self.0.get_or_init(open).as_ref()
    }

    /// `None`: use the page cache.
    pub(crate) fn read(
        &self,
        (inner, node, flags): (&Inner, &Node, OFlags),
        offset: u64,
        len: usize,
        into: &mut Vec<u8>,
    ) -> Option<Result<usize, Errno>> {
        let file = self.get(inner, node, flags)?;
        let done = with_aligned(len, |buffer| {
            let read = rustix::io::pread(file, &mut *buffer, offset)?;
            into.extend_from_slice(&buffer[..read]);
            Ok(read)
        });
        unless_refused(done)
    }

    pub(crate) fn write(
        &self,
        (inner, node, flags): (&Inner, &Node, OFlags),
        offset: u64,
        data: &[u8],
        how: ReadWriteFlags,
    ) -> Option<Result<usize, Errno>> {
        let file = self.get(inner, node, flags)?;
        let done = with_aligned(data.len(), |buffer| {
            buffer.copy_from_slice(data);
            rustix::io::pwritev2(file, &[std::io::IoSlice::new(buffer)], offset, how)
        });
        unless_refused(done)
    }
}

/// INVAL: the disk has larger blocks.
fn unless_refused(done: Result<usize, Errno>) -> Option<Result<usize, Errno>> {
    if done == Err(Errno::INVAL) { None } else { Some(done) }
}

/// The file system may lack uncached reads.
pub(crate) fn read_uncached(
    file: impl AsFd,
    offset: u64,
    len: usize,
    into: &mut Vec<u8>,
) -> Result<(usize, bool), Errno> {
    match ffi::read_at(file.as_fd(), offset, len, false, ReadHow::Uncached, into) {
        Err(Errno::OPNOTSUPP) => {
            ffi::read_at(file.as_fd(), offset, len, false, ReadHow::Waiting, into)
        }
        done => done,
    }
}
