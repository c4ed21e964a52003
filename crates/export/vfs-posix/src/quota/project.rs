use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, Mode, OFlags, Statx};
use rustix::io::Errno;
use vouch_vfs::FileType;

use crate::attributes::file_type;
use crate::ffi::{self, QuotaRecord};

/// Far above the numbers that people give projects.
const OWN_FIRST: u32 = 1 << 30;
const OWN_COUNT: u32 = 1 << 30;

/// By which an unused number is sought.
const TRIES_MAX: u32 = 64;

pub(super) fn is_own(number: u32) -> bool {
    (OWN_FIRST..OWN_FIRST + OWN_COUNT).contains(&number)
}

pub(super) fn unused_number(
    of: &[u8],
    record: impl Fn(u32) -> Result<QuotaRecord, Errno>,
) -> Result<u32, Errno> {
    // FNV-1a.
    let hash = of
        .iter()
        .fold(0x811c_9dc5u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    for step in 0..TRIES_MAX {
        let number = OWN_FIRST + hash.wrapping_add(step) % OWN_COUNT;
        if record(number)?.is_unused() {
            return Ok(number);
        }
    }
    Err(Errno::USERS)
}

/// False for a directory of another project, such as a nested export. Links and special files keep
/// project 0: they cannot be opened, and take hardly any space.
pub(super) fn mark(directory: BorrowedFd<'_>, name: &CStr, stat: &Statx, number: u32) -> bool {
    let kind = file_type(stat);
    let is_directory = kind == Some(FileType::Directory);
    if !is_directory && kind != Some(FileType::Regular) {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(fd) = fs::openat(directory, name, flags, Mode::empty()) else { return false };
    // A client may have put another file in its place.
    let is_same = |now: &Statx| now.stx_ino == stat.stx_ino && now.stx_mode == stat.stx_mode;
    if !crate::attributes::stat(fd.as_fd()).is_ok_and(|now| is_same(&now)) {
        return false;
    }
    match ffi::project_of(fd.as_fd()) {
        Ok(mut project) if project.number == 0 || project.number == number => {
            project.set(number, is_directory);
            ffi::set_project(fd.as_fd(), &project).is_ok()
        }
        _ => false,
    }
}
