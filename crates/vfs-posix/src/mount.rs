//! The file systems below an exported directory: the one that it lies on, and those mounted further down where crossing is part of the export.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::Errno;

use crate::journal::Journal;
use crate::pressure::Pressure;
use crate::{ffi, probe};

/// One file system.
pub(crate) struct Mount {
    /// Its root, or the exported directory; open for reading, as opening by handle wants it.
    pub(crate) fd: OwnedFd,
    /// The kernel's number of the mount; changes with each mounting.
    pub(crate) id: i32,
    /// Number that outlives restarts where the file system has one: `f_fsid`.
    pub(crate) fsid: u64,
    /// Device number, to tell subvolumes.
    pub(crate) device: (u32, u32),
    /// Whether it is the root's.
    pub(crate) is_root: bool,
    /// Whether it gives out handles.
    pub(crate) handles: bool,
    /// Whether it is stacked on others, by whose device numbers its files are told apart. There a file is born again when it is first written to: its copy takes its place.
    pub(crate) stacked: bool,
    /// Whether it lives in memory: nothing is to be waited for, and nothing survives a loss of power.
    pub(crate) in_memory: bool,
    /// Its journal, if one commit makes durable all changes before it.
    pub(crate) journal: Option<Journal>,
    /// Whether the time of change moves with every change that somebody could tell apart.
    pub(crate) fine_times: bool,
    /// Whether reads can be told not to wait.
    pub(crate) reads_now: AtomicBool,
    /// Whether writes sleep.
    pub(crate) pressure: Pressure,
}

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;
const OVERLAY_MAGIC: i64 = 0x794c_7630;

impl Mount {
    /// The file system on which the open directory lies.
    pub(crate) fn new(fd: OwnedFd, is_root: bool) -> Result<Self, Errno> {
        let stat = fs::fstatfs(&fd)?;
        let statx = fs::statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        let device = (statx.stx_dev_major, statx.stx_dev_minor);
        let (handles, id) = match ffi::name_to_handle(fd.as_fd(), c"") {
            Ok((handle, id)) => (crate::handle::id_of_handle(Some(0), &handle).is_some(), id),
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => (false, i32::try_from(statx.stx_mnt_id).map_err(|_| Errno::OVERFLOW)?),
            Err(errno) => return Err(errno),
        };
        let words = fs::fstatvfs(&fd)?.f_fsid;
        let fsid = if words == 0 { u64::from(device.0) << 32 | u64::from(device.1) } else { words };
        let kind = stat.f_type;
        Ok(Mount {
            id,
            fsid,
            device,
            is_root,
            handles,
            stacked: kind == OVERLAY_MAGIC,
            in_memory: kind == TMPFS_MAGIC || kind == RAMFS_MAGIC,
            journal: Journal::of(kind, device),
            fine_times: probe::fine_times(&fd),
            reads_now: AtomicBool::new(true),
            pressure: Pressure::default(),
            fd,
        })
    }

    pub(crate) fn reads_now(&self) -> bool {
        self.reads_now.load(Ordering::Relaxed)
    }

    /// The number that identities carry.
    pub(crate) fn id_fsid(&self) -> Option<u64> {
        (!self.is_root).then_some(self.fsid)
    }
}
