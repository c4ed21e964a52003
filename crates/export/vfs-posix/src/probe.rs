//! Features that a file system does not report, probed with unnamed files when it is exported.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags, SeekFrom, StatxFlags, XattrFlags};
use rustix::io::Errno;

use crate::{ffi, identity};

/// For cloned ranges, bytes.
const BLOCK_LEN: usize = 4096;

fn unnamed_file(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    fs::openat(directory, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR)
}

/// Quick successive changes get different times. False for read-only file systems and those without
/// unnamed files.
pub(crate) fn fine_times(directory: &OwnedFd) -> bool {
    const TRIES: u32 = 16;
    let Ok(file) = unnamed_file(directory) else { return false };
    let changed = || {
        fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map(|stat| (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec))
    };
    let Ok(mut last) = changed() else { return false };
    for round in 0..TRIES {
        let mode = if round % 2 == 0 { Mode::WUSR } else { Mode::RUSR };
        let Ok(()) = fs::fchmod(&file, mode) else { return false };
        match changed() {
            Ok(now) if now != last => last = now,
            _ => return false,
        }
    }
    true
}

/// 0 without support for cloning.
pub(crate) fn clone_block_len(directory: &OwnedFd) -> u32 {
    let clone = || {
        let (from, to) = (unnamed_file(directory)?, unnamed_file(directory)?);
        rustix::io::pwrite(&from, &[1; BLOCK_LEN], 0)?;
        ffi::clone_range(from.as_fd(), 0, BLOCK_LEN as u64, to.as_fd(), 0)
    };
    if clone().is_ok() { BLOCK_LEN as u32 } else { 0 }
}

/// The attribute of SELinux.
pub(crate) const LABEL: &str = "security.selinux";
const UNLABELED: &[u8] = b"system_u:object_r:unlabeled_t:s0\0";

pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// Bytes. A client that does not know it may cache writes that cannot be stored.
pub(crate) fn file_size_max(directory: &OwnedFd) -> u64 {
    /// Every file system supports this length; a smaller result is an error.
    const SUPPORTED_MIN: u64 = i32::MAX as u64;
    let Ok(file) = unnamed_file(directory) else { return OFFSET_MAX };
    let supports = |offset| fs::seek(&file, SeekFrom::Start(offset)).is_ok();
    if supports(OFFSET_MAX) || !supports(SUPPORTED_MIN) {
        return OFFSET_MAX;
    }
    let (mut within, mut beyond) = (SUPPORTED_MIN, OFFSET_MAX);
    while beyond - within > 1 {
        let middle = within + (beyond - within) / 2;
        *(if supports(middle) { &mut within } else { &mut beyond }) = middle;
    }
    within
}

/// False too if the server may not set them: then a client with SELinux could create no file.
pub(crate) fn sets_labels(directory: &OwnedFd) -> bool {
    let Ok(file) = unnamed_file(directory) else { return knows_xattr(directory, LABEL) };
    let set = || fs::fsetxattr(&file, LABEL, UNLABELED, XattrFlags::empty());
    let done = match set() {
        Err(Errno::PERM) => identity::with_administration(set),
        done => done,
    };
    // SELinux of this system may refuse this label and take others.
    !matches!(done, Err(Errno::PERM | Errno::OPNOTSUPP))
}

pub(crate) fn knows_xattr(directory: &OwnedFd, name: &str) -> bool {
    !matches!(fs::fgetxattr(directory, name, &mut [0u8; 0][..]), Err(Errno::OPNOTSUPP))
}
