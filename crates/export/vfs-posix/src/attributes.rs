//! Converts `statx` results to [`Attributes`], and computes the change attribute.
//!
//! With fine time stamps (multigrain times of Linux 6.13) it is ctime in nanoseconds. Otherwise the
//! number of our last change is added (`change_counter.rs`), which lives with the descriptor.
//!
//! A clock set back lowers the change attribute, so it is not reported as monotonic.

use rustix::fs::{self, AtFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use vouch_vfs::{Attributes, Error, FileType, Result, Time, mutant};

use crate::errno::OrError;
use crate::mount::Mount;
use crate::node::Node;

const WANTED: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

pub(crate) fn stat(fd: BorrowedFd<'_>) -> std::result::Result<Statx, Errno> {
    fs::statx(fd, c"", AtFlags::EMPTY_PATH, WANTED)
}

/// Without following symbolic links.
pub(crate) fn stat_name(
    directory: BorrowedFd<'_>,
    name: &std::ffi::CStr,
) -> std::result::Result<Statx, Errno> {
    fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, WANTED)
}

impl Node {
    pub(crate) fn attributes(&self) -> Result<Attributes> {
        self.attributes_of(&stat(self.as_fd()).or_error()?)
    }

    pub(crate) fn attributes_of(&self, stat: &Statx) -> Result<Attributes> {
        attributes(stat, &self.mount, self.changes(changed_ns(stat)))
    }

    pub(crate) fn change(&self) -> u64 {
        stat(self.as_fd()).map_or(0, |stat| change(&stat, self.changes(changed_ns(&stat))))
    }
}

fn change(stat: &Statx, changes: u64) -> u64 {
    if mutant("change-id-by-coarse-ctime") {
        return stat.stx_ctime.tv_sec as u64;
    }
    if mutant("change-id-repeats") {
        return changed_ns(stat).wrapping_add(changes) & 7;
    }
    changed_ns(stat).wrapping_add(changes)
}

fn changed_ns(stat: &Statx) -> u64 {
    (stat.stx_ctime.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(stat.stx_ctime.tv_nsec.into())
}

pub(crate) fn attributes(stat: &Statx, mount: &Mount, changes: u64) -> Result<Attributes> {
    Ok(Attributes {
        file_type: file_type(stat).ok_or(Error::WrongType)?,
        mode: stat.stx_mode & 0o7777,
        links: if mutant("link-count-misses-one") {
            stat.stx_nlink.saturating_sub(1).max(1)
        } else {
            stat.stx_nlink
        },
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        space_used: stat.stx_blocks.saturating_mul(512),
        device: (stat.stx_rdev_major, stat.stx_rdev_minor),
        // Files of a stacked file system show different devices.
        fsid: if mount.stacked { mount.fsid } else { inode_scope(stat, mount) },
        file_number: stat.stx_ino & mount.inode_mask,
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
        created: (stat.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(stat.stx_btime)),
        change: change(stat, changes),
    })
}

/// The file system or subvolume, within which inode numbers are unique.
pub(crate) fn inode_scope(stat: &Statx, mount: &Mount) -> u64 {
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    if device == mount.device {
        return mount.fsid;
    }
    // A subvolume has its own inode numbers and device number.
    mount.fsid
        ^ (u64::from(device.0) << 32 | u64::from(device.1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(crate) fn file_type(stat: &Statx) -> Option<FileType> {
    Some(match fs::FileType::from_raw_mode(stat.stx_mode.into()) {
        fs::FileType::RegularFile => FileType::Regular,
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        fs::FileType::CharacterDevice => FileType::CharDevice,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::Unknown => return None,
    })
}

fn time(stamp: StatxTimestamp) -> Time {
    Time { seconds: stamp.tv_sec, nanos: stamp.tv_nsec }
}

/// Nanoseconds, which distinguish files that reuse an inode number; 0 if unknown.
pub(crate) fn birth(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    (stat.stx_btime.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(stat.stx_btime.tv_nsec.into())
}
