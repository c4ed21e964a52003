//! Order: size, owner, mode, times; each by a system call of the caller.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::process::{Gid, Uid};
use vouch_vfs::{Caller, Error, FileType, Result, SetAttributes, SetTime, mutant};

use crate::attributes::stat;
use crate::errno::OrError;
use crate::export::Inner;
use crate::identity;
use crate::node::Node;

impl Inner {
    /// `open`: a descriptor opened for writing.
    pub(crate) fn set(
        &self,
        caller: &Caller,
        node: &Node,
        open: Option<BorrowedFd<'_>>,
        set: &SetAttributes,
    ) -> Result<()> {
        self.changeable()?;
        identity::assume(caller)?;
        let _changing = node.changing();
        if let Some(size) = set.size {
            self.set_size(node, open, size)?;
        }
        if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
            return Err(Error::Invalid);
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            fs::chownat(node, c"", uid, gid, AtFlags::EMPTY_PATH).or_error()?;
        }
        if let Some(mode) = set.mode {
            let mode = match set.mode_mask {
                None => mode,
                Some(mask) => stat(node.as_fd()).or_error()?.stx_mode & !mask | mode & mask,
            };
            let mode = if mutant("mode-loses-group-bits") { mode & !0o070 } else { mode };
            let (descriptors, number) = self.descriptor_name(node.as_fd());
            fs::chmodat(
                descriptors,
                number.as_c_str(),
                Mode::from_raw_mode(u32::from(mode) & 0o7777),
                AtFlags::empty(),
            )
            .or_error()?;
        }
        if set.accessed.is_some() || set.modified.is_some() {
            let times = Timestamps {
                last_access: stamp(set.accessed)?,
                last_modification: stamp(set.modified)?,
            };
            fs::utimensat(node, c"", &times, AtFlags::EMPTY_PATH).or_error()?;
        }
        Ok(())
    }

    pub(crate) fn set_new(
        &self,
        caller: &Caller,
        node: &Node,
        fd: &OwnedFd,
        set: &SetAttributes,
    ) -> Result<()> {
        if set.is_empty() { Ok(()) } else { self.set(caller, node, Some(fd.as_fd()), set) }
    }

    fn set_size(&self, node: &Node, open: Option<BorrowedFd<'_>>, size: u64) -> Result<()> {
        match node.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsDirectory),
            FileType::Symlink => return Err(Error::IsSymlink),
            _ => return Err(Error::WrongType),
        }
        if i64::try_from(size).is_err() {
            return Err(Error::TooLarge);
        }
        let known = stat(node.as_fd()).or_error()?.stx_size;
        if size > known && mutant("truncate-does-not-extend") {
            return Ok(());
        }
        let size = if mutant("truncate-keeps-one-cell-more") { known.min(size + 8) } else { size };
        match open {
            Some(fd) => fs::ftruncate(fd, size),
            None => {
                self.reopen(node.as_fd(), OFlags::WRONLY).and_then(|fd| fs::ftruncate(fd, size))
            }
        }
        .or_error()
    }
}

fn stamp(time: Option<SetTime>) -> Result<Timespec> {
    Ok(match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(time)) if time.nanos >= 1_000_000_000 => return Err(Error::Invalid),
        Some(SetTime::To(time)) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() },
    })
}
