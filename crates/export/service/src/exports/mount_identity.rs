//! Changes when the directory is replaced, mounted over or unmounted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::syntax::Source;

/// Device, inode and mount: unique while the directory is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountIdentity {
    device: (u32, u32),
    inode: u64,
    mount: u64,
}

impl MountIdentity {
    pub(crate) fn of(source: &Source) -> Option<Self> {
        let path = match source {
            Source::Directory(path) => path,
            Source::Tree(what) if !what.starts_with(b"@") => what,
            Source::Tree(_) => return None,
        };
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let found =
            statx(CWD, Path::new(OsStr::from_bytes(path)), AtFlags::empty(), wanted).ok()?;
        Some(MountIdentity {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            mount: found.stx_mnt_id,
        })
    }
}
