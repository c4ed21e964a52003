//! The export's own file system, and those mounted below under `crossmnt`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::Errno;
use vouch_vfs::SystemId;

use crate::journal::Journal;
use crate::write_throttle::WriteThrottle;
use crate::{ffi, probe};

pub(crate) struct Mount {
    /// The root or the exported directory, open for reading as opening by handle requires.
    pub(crate) fd: OwnedFd,
    /// Of the kernel; changes at each mount.
    pub(crate) id: i32,
    /// The file system's, or the snapshot's. Of a mount below the root also of its [`MountView`].
    pub(crate) fsid: u64,
    pub(crate) view: MountView,
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
}

/// What a mount permits besides its file system: bind mounts can be read-only or map identities.
/// Mounts of one file system with the same view stand for each other; a handle from another view must
/// not lead through them. Mount options without effect on a server (nosuid, nodev, noexec) are left
/// out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountView {
    /// The mount is read-only and its file system is not.
    is_read_only: bool,
    /// Of an idmapped mount, the mount point: the kernel shows no mapping before Linux 6.15.
    mapped_at: Option<Vec<u8>>,
}

impl MountView {
    /// A mount that is not listed for this process has the default view.
    fn of(mount: i32) -> Self {
        let read = |fields: &mut dyn Iterator<Item = &[u8]>| {
            let (point, options) = (fields.nth(3)?, fields.next()?);
            let has = |options: &[u8], wanted: &[u8]| options.split(|&byte| byte == b',').any(|option| option == wanted);
            let of_file_system = fields.last()?;
            Some(MountView {
                is_read_only: has(options, b"ro") && !has(of_file_system, b"ro"),
                mapped_at: has(options, b"idmapped").then(|| point.to_vec()),
            })
        };
        with_mount_line(mount, read).unwrap_or_default()
    }

    /// The number of a file system below `root` in identities, the same after each restart.
    fn number(&self, fsid: u64, root: &Mount) -> u64 {
        let is_of_root = fsid == root.fsid;
        if if is_of_root { *self == root.view } else { *self == MountView::default() } {
            return fsid;
        }
        let mut hasher = blake3::Hasher::new_derive_key("vouch view of a mount 1");
        hasher.update(&fsid.to_be_bytes()).update(&[self.is_read_only.into(), self.mapped_at.is_some().into()]);
        hasher.update(self.mapped_at.as_deref().unwrap_or_default());
        u64::from_be_bytes(*hasher.finalize().as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"))
    }
}

/// By the mount's own device number; subvolumes show others. None if the mount is not listed for
/// this process.
fn system_of(mount: i32) -> Option<SystemId> {
    with_mount_line(mount, |fields| {
        let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
        Some(SystemId::of_device(major.parse().ok()?, minor.parse().ok()?))
    })
}

/// As the kernel names it, for example `ext4` or `fuse.sshfs`.
pub(crate) fn file_system_type(mount: i32) -> Option<Vec<u8>> {
    with_mount_line(mount, |fields| {
        while fields.next()? != b"-" {}
        fields.next().map(<[u8]>::to_vec)
    })
}

/// `read` gets the fields of mountinfo after the mount's number.
fn with_mount_line<T>(mount: i32, read: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> Option<T>) -> Option<T> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let mount = mount.to_string();
    // The first fields are numbers; the rest of a line need not be text.
    let mut lines = table.split(|&byte| byte == b'\n').map(|line| line.split(|&byte| byte == b' '));
    let mut fields = lines.find_map(|mut fields| (fields.next()? == mount.as_bytes()).then_some(fields))?;
    read(&mut fields)
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

fn has_type(mount: i32, types: &[&str]) -> bool {
    file_system_type(mount).is_some_and(|kind| types.iter().any(|name| name.as_bytes() == kind))
}

/// CephFS reports holes as data, and sizes as space used.
pub(crate) fn finds_holes(mount: i32) -> bool {
    !has_type(mount, &CEPH_FUSE) && !has_type(mount, &["ceph"])
}

const CEPH_FUSE: [&str; 2] = ["fuse.ceph-fuse", "fuse.ceph"];

/// ceph-fuse numbers snapshots in the order of their first use. These numbers are the upper bits of
/// inode numbers and handles in snapshots.
const CEPH_INODE_MASK: u64 = (1 << 48) - 1;

impl Mount {
    pub(crate) fn new(fd: OwnedFd, is_root: bool) -> Result<Self, Errno> {
        let fine_times = probe::fine_times(&fd);
        Mount::with_times(fd, is_root, fine_times)
    }

    /// A mount below `root`.
    pub(crate) fn below(root: &Mount, fd: OwnedFd) -> Result<Self, Errno> {
        let mount = Mount::new(fd, false)?;
        Ok(Mount { fsid: mount.view.number(mount.fsid, root), ..mount })
    }

    /// Its content never changes, so its times need no probe.
    pub(crate) fn snapshot(fd: OwnedFd, number: u64) -> Result<Self, Errno> {
        let mount = Mount::with_times(fd, false, true)?;
        if has_type(mount.id, &CEPH_FUSE) {
            return Ok(Mount { fsid: number, handles: false, inode_mask: CEPH_INODE_MASK, ..mount });
        }
        Ok(Mount { fsid: number, ..mount })
    }

    fn with_times(fd: OwnedFd, is_root: bool, fine_times: bool) -> Result<Self, Errno> {
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
            view: MountView::of(id),
            device,
            system: system_of(id).unwrap_or_else(|| SystemId::of_device(device.0, device.1)),
            is_root,
            handles,
            inode_mask: u64::MAX,
            stacked: kind == OVERLAY_MAGIC,
            is_remote: REMOTE_MAGICS.contains(&kind),
            has_valid_pages: has_type(id, &CEPH_FUSE),
            in_memory: kind == TMPFS_MAGIC || kind == RAMFS_MAGIC,
            journal: Journal::of(kind, device),
            fine_times,
            may_read_cached: AtomicBool::new(true),
            pressure: WriteThrottle::default(),
            fd,
        })
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
