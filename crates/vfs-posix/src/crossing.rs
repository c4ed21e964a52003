//! Mount points below the root, where crossing them is part of the export.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
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
    /// The file system with this number; none: the root's.
    pub(crate) fn mount(&self, fsid: Option<u64>) -> Result<Arc<Mount>> {
        let Some(fsid) = fsid.filter(|&fsid| fsid != self.root.mount.fsid) else { return Ok(Arc::clone(&self.root.mount)) };
        if !self.options.cross_mounts {
            return Err(Error::Stale);
        }
        let known = |inner: &Inner| inner.mounts.read().values().find(|mount| mount.fsid == fsid).cloned();
        if let Some(mount) = known(self) {
            return Ok(mount);
        }
        self.find_mounts()?;
        known(self).ok_or(Error::Stale)
    }

    /// Where a file lies.
    pub(crate) fn home(&self, id: &FileId) -> Home {
        // One on a file system that is not to be found is stale, and nothing depends on where it was.
        handle::home_of(id, |fsid| self.mount(fsid).map_or(SystemId::UNKNOWN, |mount| mount.system))
    }

    /// The file system of a name in `directory`, of which the kernel says that it lies on the mount `id`.
    pub(crate) fn mount_entered(&self, directory: &Node, name: &CStr, id: i32) -> Result<Arc<Mount>> {
        if id == directory.mount.id {
            return Ok(Arc::clone(&directory.mount));
        }
        if !self.options.cross_mounts {
            return Err(Error::Access);
        }
        if let Some(mount) = self.mounts.read().get(&id) {
            return Ok(Arc::clone(mount));
        }
        // Anybody may learn what is mounted; who may enter is decided by the names below.
        identity::assume_root()?;
        let fd = fs::openat(directory, name, OPEN, Mode::empty()).or_error()?;
        self.enter(fd)
    }

    /// Remembers a file system by an open file on it.
    fn enter(&self, fd: std::os::fd::OwnedFd) -> Result<Arc<Mount>> {
        let mut mount = Arc::new(Mount::new(fd, false).or_error()?);
        if !self.opens_by_handle(&mount) && self.options.ids.is_none() {
            // Its files would be lost as soon as their descriptors go.
            return Err(Error::Access);
        }
        let id = mount.id;
        let mut mounts = self.mounts.write();
        let same = std::iter::once(&self.root.mount).chain(mounts.values()).find(|known| known.fsid == mount.fsid).cloned();
        if let Some(known) = same {
            if known.system != mount.system {
                // A copy of the other, block by block: identities could be of either.
                return Err(Error::Access);
            }
            if known.is_root {
                mount = known;
            }
        }
        mounts.insert(id, Arc::clone(&mount));
        Ok(mount)
    }

    /// Looks for all file systems mounted below the root: after a restart an identity may name one that nobody has entered yet.
    fn find_mounts(&self) -> Result<()> {
        identity::assume_root()?;
        let root = std::fs::read_link(Inner::descriptor_path(self.root.as_fd())).map_err(Error::Io)?;
        let table = std::fs::read("/proc/self/mountinfo").map_err(Error::Io)?;
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        for line in table.split(|&byte| byte == b'\n') {
            let Some(point) = line.split(|&byte| byte == b' ').nth(4).map(unescape) else { continue };
            let Ok(below) = std::path::Path::new(std::ffi::OsStr::from_bytes(&point)).strip_prefix(&root) else { continue };
            if below.as_os_str().is_empty() {
                continue;
            }
            if let Ok(fd) = fs::openat2(&self.root, below, OPEN, Mode::empty(), within) {
                let _ = self.enter(fd);
            }
        }
        Ok(())
    }
}

/// A path of mountinfo: blanks and their like are written as three octal digits.
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
    fn blanks_in_mount_points_are_read() {
        assert_eq!(super::unescape(br"/a\040b\134\011/c"), b"/a b\\\t/c");
        assert_eq!(super::unescape(br"/a\04"), br"/a\04");
    }
}
