//! The export's own file system, and those mounted below under `crossmnt`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::Errno;
use vouch_vfs::SystemId;

use crate::journal::Journal;
use crate::mount_table::{MountLine, MountTable};
use crate::quota::usage::Usage;
use crate::write_throttle::WriteThrottle;
use crate::{ffi, probe};

pub(crate) struct Mount {
    /// The root or the exported directory, open for reading as opening by handle requires.
    pub(crate) fd: OwnedFd,
    /// Of the kernel; changes at each mount.
    pub(crate) id: i32,
    /// The file system's, or the snapshot's. Of a mount below the root also of its subtree and its
    /// [`MountView`](crate::mount_table::MountView).
    pub(crate) fsid: u64,
    /// As the kernel names it; empty if the mount is not listed for this process.
    pub(crate) kind: Vec<u8>,
    pub(crate) device: (u32, u32),
    /// The same through any mount, subvolume or directory.
    pub(crate) system: SystemId,
    pub(crate) is_root: bool,
    pub(crate) handles: bool,
    /// The part of an inode number that is the same at each mount.
    pub(crate) inode_mask: u64,
    /// overlayfs: device numbers distinguish its files, and a first write replaces a file by a
    /// copy.
    pub(crate) stacked: bool,
    /// A call may wait for other machines or processes without a limit.
    pub(crate) is_remote: bool,
    /// ceph-fuse keeps the page cache valid, and reads of it need no call.
    pub(crate) has_valid_pages: bool,
    /// tmpfs or ramfs: no call blocks, and no data survives a power failure.
    pub(crate) in_memory: bool,
    /// Only if one commit makes all earlier changes durable.
    pub(crate) journal: Option<Journal>,
    pub(crate) fine_times: bool,
    pub(crate) may_read_cached: AtomicBool,
    pub(crate) pressure: WriteThrottle,
    /// Of the export's own file system.
    pub(crate) usage: Usage,
}

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;
const OVERLAY_MAGIC: i64 = 0x794c_7630;

/// FUSE, CephFS, Lustre, GPFS, BeeGFS, GFS2, OCFS2, NFS, CIFS, SMB2, 9P, AFS.
const REMOTE_MAGICS: [i64; 12] = [
    0x6573_5546,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x0116_1970,
    0x7461_636f,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x5346_414f,
];

const CEPH_FUSE: [&[u8]; 2] = [b"fuse.ceph-fuse", b"fuse.ceph"];

/// ceph-fuse numbers snapshots in the order of their first use. These numbers are the upper bits of
/// inode numbers and handles in snapshots.
const CEPH_INODE_MASK: u64 = (1 << 48) - 1;

fn listed(fd: &OwnedFd) -> Result<Option<MountLine>, Errno> {
    let id = mount_id(fd.as_fd())?;
    Ok(MountTable::read().ok().and_then(|table| table.get(id).cloned()))
}

/// Never asks the file system.
pub(crate) fn mount_id(fd: BorrowedFd<'_>) -> Result<i32, Errno> {
    let statx =
        fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID)?;
    i32::try_from(statx.stx_mnt_id).map_err(|_| Errno::OVERFLOW)
}

/// `device`: of the directory, for file systems without a number.
pub(crate) fn fsid_of(fd: BorrowedFd<'_>, device: (u32, u32)) -> Result<u64, Errno> {
    let words = fs::fstatvfs(fd)?.f_fsid;
    Ok(if words == 0 { u64::from(device.0) << 32 | u64::from(device.1) } else { words })
}

impl Mount {
    pub(crate) fn new(fd: OwnedFd, is_root: bool) -> Result<Self, Errno> {
        let fine_times = probe::fine_times(&fd);
        let line = listed(&fd)?;
        Mount::with_times(fd, is_root, fine_times, line.as_ref())
    }

    /// A mount below the root.
    pub(crate) fn below(fd: OwnedFd, line: &MountLine, number: u64) -> Result<Self, Errno> {
        let fine_times = probe::fine_times(&fd);
        let mount = Mount::with_times(fd, false, fine_times, Some(line))?;
        Ok(Mount { fsid: number, ..mount })
    }

    /// Its content never changes, so its times need no probe.
    pub(crate) fn snapshot(fd: OwnedFd, number: u64) -> Result<Self, Errno> {
        let line = listed(&fd)?;
        let mount = Mount::with_times(fd, false, true, line.as_ref())?;
        if mount.is_ceph_fuse() {
            return Ok(Mount {
                fsid: number,
                handles: false,
                inode_mask: CEPH_INODE_MASK,
                ..mount
            });
        }
        Ok(Mount { fsid: number, ..mount })
    }

    fn with_times(
        fd: OwnedFd,
        is_root: bool,
        fine_times: bool,
        line: Option<&MountLine>,
    ) -> Result<Self, Errno> {
        let magic = fs::fstatfs(&fd)?.f_type;
        let statx =
            fs::statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        let device = (statx.stx_dev_major, statx.stx_dev_minor);
        let handles = match ffi::name_to_handle(fd.as_fd(), c"") {
            Ok((handle, _)) => crate::handle::id_of_handle(Some(0), &handle).is_some(),
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => false,
            Err(errno) => return Err(errno),
        };
        let mount = Mount {
            id: i32::try_from(statx.stx_mnt_id).map_err(|_| Errno::OVERFLOW)?,
            fsid: fsid_of(fd.as_fd(), device)?,
            kind: line.map(|line| line.kind.clone()).unwrap_or_default(),
            device,
            system: line.map_or(SystemId::of_device(device.0, device.1), MountLine::system),
            is_root,
            handles,
            inode_mask: u64::MAX,
            stacked: magic == OVERLAY_MAGIC,
            is_remote: REMOTE_MAGICS.contains(&magic),
            has_valid_pages: false,
            in_memory: magic == TMPFS_MAGIC || magic == RAMFS_MAGIC,
            journal: Journal::of(magic, device),
            fine_times,
            may_read_cached: AtomicBool::new(true),
            pressure: WriteThrottle::default(),
            usage: Usage::default(),
            fd,
        };
        Ok(Mount { has_valid_pages: mount.is_ceph_fuse(), ..mount })
    }

    fn is_ceph_fuse(&self) -> bool {
        CEPH_FUSE.contains(&&*self.kind)
    }

    /// CephFS reports holes as data, and sizes as space used.
    pub(crate) fn finds_holes(&self) -> bool {
        !self.is_ceph_fuse() && self.kind != b"ceph"
    }

    pub(crate) fn note_remote(&self, remote: &OnceLock<SystemId>) {
        if self.is_remote {
            remote.get_or_init(|| self.system);
        }
    }

    pub(crate) fn may_read_cached(&self) -> bool {
        self.may_read_cached.load(Ordering::Relaxed)
    }

    pub(crate) fn id_fsid(&self) -> Option<u64> {
        (!self.is_root).then_some(self.fsid)
    }
}
