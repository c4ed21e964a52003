//! Crossing of mount points below the root, for exports with `crossmnt`.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use vouch_vfs::{Error, FileId, Home, Result, SystemId};

use crate::errno::OrError;
use crate::export::Inner;
use crate::mount::Mount;
use crate::node::Node;
use crate::{handle, identity};

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl Inner {
    pub(crate) fn mount(&self, fsid: Option<u64>) -> Result<Arc<Mount>> {
        let Some(fsid) = fsid.filter(|&fsid| fsid != self.root.mount.fsid) else { return Ok(Arc::clone(&self.root.mount)) };
        if !self.options.cross_mounts {
            return Err(Error::Stale);
        }
        let known = |inner: &Inner| inner.mounts.read().of(fsid);
        if let Some(mount) = known(self) {
            return Ok(mount);
        }
        self.find_mounts()?;
        known(self).ok_or(Error::Stale)
    }

    pub(crate) fn home(&self, id: &FileId) -> Home {
        // A file on a missing file system is stale.
        handle::home_of(id, |fsid| self.mount(fsid).map_or(SystemId::UNKNOWN, |mount| mount.system))
    }

    /// Of a name in `directory`, on the kernel's mount `id`.
    pub(crate) fn mount_entered(&self, directory: &Node, name: &CStr, id: i32) -> Result<Arc<Mount>> {
        if id == directory.mount.id {
            return Ok(Arc::clone(&directory.mount));
        }
        if !self.options.cross_mounts {
            return Err(Error::Access);
        }
        if let Some(mount) = self.mounts.read().get(id) {
            return Ok(mount);
        }
        // Mount points are public; access is checked below them.
        let _as_root = identity::assume_root()?;
        let fd = fs::openat(directory, name, OPEN, Mode::empty()).or_error()?;
        self.enter(fd)
    }

    fn enter(&self, fd: std::os::fd::OwnedFd) -> Result<Arc<Mount>> {
        let mut mount = Arc::new(Mount::below(&self.root.mount, fd).or_error()?);
        if !self.opens_by_handle(&mount) && self.options.ids.is_none() {
            // Files would be lost with their descriptors.
            return Err(Error::Access);
        }
        let id = mount.id;
        let mut mounts = self.mounts.write();
        let is_root = self.root.mount.fsid == mount.fsid;
        let same = if is_root { Some(Arc::clone(&self.root.mount)) } else { mounts.of(mount.fsid) };
        if let Some(known) = same {
            if known.system != mount.system {
                // A block-by-block copy of another file system: identities would be ambiguous.
                return Err(Error::Access);
            }
            if known.is_root {
                mount = known;
            }
        }
        mount.note_remote(&self.remote);
        mounts.insert(id, &mount);
        Ok(mount)
    }

    /// After a restart, an identity may belong to a file system that nobody has entered yet.
    fn find_mounts(&self) -> Result<()> {
        let _as_root = identity::assume_root()?;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        for below in mount_points(self.root.as_fd())? {
            if let Ok(fd) = fs::openat2(&self.root, below, OPEN, Mode::empty(), within) {
                let _ = self.enter(fd);
            }
        }
        Ok(())
    }
}

pub(crate) fn mount_points(directory: BorrowedFd<'_>) -> Result<Vec<PathBuf>> {
    let above = std::fs::read_link(Inner::descriptor_path(directory)).map_err(Error::Io)?;
    let table = std::fs::read("/proc/self/mountinfo").map_err(Error::Io)?;
    let points = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let point = line.split(|&byte| byte == b' ').nth(4).map(unescape)?;
        let below = Path::new(OsStr::from_bytes(&point)).strip_prefix(&above).ok()?;
        (!below.as_os_str().is_empty()).then(|| below.to_owned())
    });
    Ok(points.collect())
}

/// By the kernel's mount id and by the number in identities.
#[derive(Default)]
pub(crate) struct Mounts {
    by_id: HashMap<i32, Arc<Mount>>,
    by_fsid: HashMap<u64, Arc<Mount>>,
}

impl Mounts {
    pub(crate) fn get(&self, id: i32) -> Option<Arc<Mount>> {
        self.by_id.get(&id).cloned()
    }

    fn of(&self, fsid: u64) -> Option<Arc<Mount>> {
        self.by_fsid.get(&fsid).cloned()
    }

    fn insert(&mut self, id: i32, mount: &Arc<Mount>) {
        self.by_id.insert(id, Arc::clone(mount));
        self.by_fsid.insert(mount.fsid, Arc::clone(mount));
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Mount>> {
        self.by_id.values()
    }
}

/// mountinfo writes blanks and similar bytes as three octal digits.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(coded) if byte == b'\\' => {
                plain.push(coded);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    #[test]
    fn blanks_in_mount_points_are_unescaped() {
        assert_eq!(super::unescape(br"/a\040b\134\011/c"), b"/a b\\\t/c");
        assert_eq!(super::unescape(br"/a\04"), br"/a\04");
    }
}
