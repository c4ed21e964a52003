//! Finds snapshots on disk, and tells them apart by numbers that survive restarts.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RawDir, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use vouch_vfs::{Name, Result};

use super::identity::word;
use super::pattern::SnapshotPattern;
use crate::errno::OrError;
use crate::export::Inner;
use crate::{attributes, ffi, identity};

/// A listing opens each.
pub(super) const SNAPSHOTS_MAX: usize = 4096;

const WITHIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Where these file systems show their own snapshots: by the kernel's type, below the root.
const BUILT_IN: [(&str, &str); 4] = [
    ("ceph", ".snap"),
    ("fuse.ceph", ".snap"),
    ("fuse.ceph-fuse", ".snap"),
    ("zfs", ".zfs/snapshot"),
];

/// For an option without a path.
pub(super) fn probe(live: &Inner) -> Option<SnapshotPattern> {
    let (_, path) = BUILT_IN.iter().find(|(name, _)| name.as_bytes() == live.root.mount.kind)?;
    SnapshotPattern::parse(path)
}

/// The directory whose entries are snapshots, opened for one use: it may be mounted over later.
pub(super) struct SnapshotDirectory<'a> {
    fd: OwnedFd,
    mount: u64,
    pattern: &'a SnapshotPattern,
}

/// Attributes of the directory that a new or removed snapshot changes, on most file systems.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ListStamp {
    mount: u64,
    inode: u64,
    links: u32,
    modified: (i64, u32),
    changed: (i64, u32),
}

pub(super) struct Names {
    pub(super) sorted: Vec<Vec<u8>>,
    /// There are more than `SNAPSHOTS_MAX`.
    pub(super) is_cut: bool,
}

pub(super) struct SnapshotEntry {
    /// Equal after a restart, never equal for two snapshots. A directory or subvolume keeps its
    /// number when it is renamed. A mounted file system has the number of its name: the copies of
    /// one volume differ in nothing else.
    pub(super) number: u64,
    pub(super) fd: OwnedFd,
}

impl<'a> SnapshotDirectory<'a> {
    /// A relative path stays below the export's root, whatever links users put there.
    pub(super) fn open(live: &Inner, pattern: &'a SnapshotPattern) -> Result<Self> {
        let _as_root = identity::assume_root()?;
        let path = pattern.directory();
        let fd = if path.is_absolute() {
            fs::openat(CWD, path, OFlags::RDONLY | DIRECTORY, Mode::empty())
        } else {
            fs::openat2(&live.root, path, OFlags::RDONLY | DIRECTORY, Mode::empty(), WITHIN)
        };
        let fd = fd.or_error()?;
        let mount = mount_of(&fd).or_error()?;
        Ok(SnapshotDirectory { fd, mount, pattern })
    }

    pub(super) fn stamp(&self) -> Result<ListStamp> {
        let stat = attributes::stat(self.fd.as_fd()).or_error()?;
        let [modified, changed] =
            [stat.stx_mtime, stat.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
        Ok(ListStamp {
            mount: stat.stx_mnt_id,
            inode: stat.stx_ino,
            links: stat.stx_nlink,
            modified,
            changed,
        })
    }

    pub(super) fn names(&self) -> Result<Names> {
        let mut names = Names { sorted: Vec::new(), is_cut: false };
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut listing = RawDir::new(&self.fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry.or_error()?;
            let name = entry.file_name().to_bytes();
            if Name::new(name).is_none() || !self.pattern.matches(name) {
                continue;
            }
            if names.sorted.len() >= SNAPSHOTS_MAX {
                names.is_cut = true;
                break;
            }
            names.sorted.push(name.to_vec());
        }
        names.sorted.sort_unstable();
        Ok(names)
    }

    /// `None` if the name leads to no directory, for example to a symbolic link.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<SnapshotEntry>> {
        let _as_root = identity::assume_root()?;
        self.find_as_root(name).or_error()
    }

    pub(super) fn find_as_root(
        &self,
        name: &[u8],
    ) -> std::result::Result<Option<SnapshotEntry>, Errno> {
        if !self.pattern.matches(name) {
            return Ok(None);
        }
        let path = Path::new(OsStr::from_bytes(name)).join(self.pattern.below());
        let fd = match fs::openat2(&self.fd, path, OFlags::PATH | DIRECTORY, Mode::empty(), WITHIN)
        {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
            fd => fd?,
        };
        let number = self.number(name, &fd)?;
        Ok(Some(SnapshotEntry { number, fd }))
    }

    fn number(&self, name: &[u8], fd: &OwnedFd) -> std::result::Result<u64, Errno> {
        let mut hasher = blake3::Hasher::new_derive_key("vouch snapshot 1");
        if let Some(birth) = ceph_birth(fd)? {
            return Ok(word(hasher.update(name).update(&[1]).update(&birth).finalize()));
        }
        let is_mounted = mount_of(fd)? != self.mount;
        match ffi::name_to_handle(fd.as_fd(), c"") {
            Ok((handle, _)) => {
                hasher.update(if is_mounted { name } else { b"/" }).update(&[0]);
                hasher.update(&handle.kind.to_be_bytes()).update(handle.bytes());
            }
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                let stat = attributes::stat(fd.as_fd())?;
                hasher
                    .update(name)
                    .update(&[0])
                    .update(&stat.stx_ino.to_be_bytes())
                    .update(&attributes::birth(&stat).to_be_bytes());
            }
            Err(errno) => return Err(errno),
        }
        Ok(word(hasher.finalize()))
    }
}

/// When a snapshot of CephFS was made, as text. `None` on other file systems.
fn ceph_birth(fd: &OwnedFd) -> std::result::Result<Option<Vec<u8>>, Errno> {
    let mut birth = [0; 64];
    match fs::getxattr(Inner::descriptor_path(fd.as_fd()), "ceph.snap.btime", &mut birth) {
        Ok(len) => Ok(Some(birth[..len].to_vec())),
        // Daemons of FUSE refuse an unknown attribute by INVAL or NOSYS too.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn mount_of(fd: &OwnedFd) -> std::result::Result<u64, Errno> {
    Ok(fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}
