//! Mount points that are not crossed: empty and read-only, like the kernel's NFS server.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, OFlags, RawDir, ResolveFlags, SeekFrom};
use rustix::io::Errno;
use vouch_vfs::{Access, Attributes, Blocking, DirectoryEntry, Error, FileId, FileType, Result};

use crate::errno::OrError;
use crate::export::Inner;
use crate::handle::Covered;
use crate::node::Node;
use crate::resolve::open_within;
use crate::{attributes, handle, identity, mount_crossing};

/// Cache of inode numbers. Only a listing of the parent directory has them, and a directory may
/// have many mount points.
#[derive(Default)]
pub(crate) struct CoveredIndex {
    directories: HashMap<FileId, (Stamp, Names)>,
}

type Names = HashMap<CString, (u64, fs::FileType)>;

/// Times of a directory. Mount points cannot be renamed or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    changed: (i64, u32),
    modified: (i64, u32),
}

impl Stamp {
    fn of(directory: &Node) -> Result<Self> {
        let stat = attributes::stat(directory.as_fd()).or_error()?;
        let (changed, modified) = (stat.stx_ctime, stat.stx_mtime);
        Ok(Stamp {
            changed: (changed.tv_sec, changed.tv_nsec),
            modified: (modified.tv_sec, modified.tv_nsec),
        })
    }

    /// A further change would show in the times.
    fn has_settled(&self) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        self.changed.0.max(self.modified.0).saturating_add(SETTLED_S) <= now.tv_sec
    }
}

impl CoveredIndex {
    fn get(&self, directory: &Node, stamp: &Stamp, name: &CStr) -> Option<(u64, fs::FileType)> {
        let (at, names) = self.directories.get(&directory.id)?;
        if at == stamp { names.get(name).copied() } else { None }
    }

    fn put(&mut self, directory: &Node, stamp: Stamp, names: Names) {
        if !stamp.has_settled() {
            self.directories.remove(&directory.id);
            return;
        }
        if self.directories.len() >= DIRECTORIES_MAX
            && !self.directories.contains_key(&directory.id)
        {
            // All entries are equal.
            let other = self.directories.keys().next().copied();
            other.and_then(|other| self.directories.remove(&other));
        }
        self.directories.insert(directory.id, (stamp, names));
    }
}

const DIRECTORIES_MAX: usize = 256;
/// Minimum age of the last change: longer than any clock tick.
const SETTLED_S: i64 = 2;

impl Inner {
    /// Without a call that reads a disk.
    pub(crate) fn is_known_as_covered(&self, directory: &Node, name: &CStr) -> Result<bool> {
        if self.crossing.is_some() || !self.covered.lock().directories.contains_key(&directory.id) {
            return Ok(false);
        }
        let stamp = Stamp::of(directory)?;
        Ok(self.covered.lock().get(directory, &stamp, name).is_some()
            && is_mount_point(directory, name))
    }

    /// O(1) for an unchanged directory, else O(n) in the directory and in the machine's mounts.
    pub(crate) fn covered_at(
        &self,
        directory: &Node,
        name: &CStr,
        blocking: Blocking,
    ) -> Result<Covered> {
        if !is_mount_point(directory, name) {
            return Err(Error::Access);
        }
        let stamp = Stamp::of(directory)?;
        if let Some((inode, kind)) = self.covered.lock().get(directory, &stamp, name) {
            return Ok(covered(directory, inode, kind));
        }
        directory.require_cached(blocking)?;
        // The caller knows the name, and the listing is no secret.
        let _as_root = identity::assume_root()?;
        let below = mount_crossing::mount_points(directory.as_fd())?;
        let mut wanted: HashSet<&[u8]> =
            below.iter().map(|path| path.as_os_str().as_bytes()).collect();
        wanted.insert(name.to_bytes());
        let mut names = HashMap::new();
        let fd = self.reopen(directory.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY).or_error()?;
        fs::seek(&fd, SeekFrom::Start(0)).or_error()?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut listing = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry.or_error()?;
            if wanted.contains(entry.file_name().to_bytes()) {
                names.insert(entry.file_name().into(), (entry.ino(), entry.file_type()));
            }
        }
        let found = names.get(name).copied();
        self.covered.lock().put(directory, stamp, names);
        found.map(|(inode, kind)| covered(directory, inode, kind)).ok_or(Error::Access)
    }

    pub(crate) fn covered_entry(
        &self,
        directory: &Node,
        name: &CStr,
        inode: u64,
        kind: fs::FileType,
    ) -> Option<Covered> {
        is_mount_point(directory, name).then(|| covered(directory, inode, kind))
    }

    pub(crate) fn covered_attributes(
        &self,
        covered: &Covered,
        blocking: Blocking,
    ) -> Result<Attributes> {
        let above = self.node_by(&covered.directory, blocking)?.attributes()?;
        if above.links == 0 {
            return Err(Error::Stale);
        }
        let directory = covered.file_type == FileType::Directory;
        Ok(Attributes {
            file_type: covered.file_type,
            mode: if directory { 0o555 } else { 0o444 },
            links: if directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            size: 0,
            space_used: 0,
            device: (0, 0),
            file_number: covered.inode,
            created: None,
            ..above
        })
    }

    /// None if the directory's identity is too long.
    pub(crate) fn covered_id(&self, covered: &Covered) -> Result<FileId> {
        handle::id_of_covered(covered).ok_or(Error::Access)
    }
}

impl Covered {
    pub(crate) fn of(id: &FileId) -> Option<Self> {
        handle::covered(id)
    }

    pub(crate) fn access(&self, wanted: Access) -> Access {
        let readable = if self.file_type == FileType::Directory {
            Access::READ | Access::LOOKUP
        } else {
            Access::default()
        };
        wanted & readable
    }

    pub(crate) fn list(
        &self,
        cookie: u64,
        _: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        match (self.file_type, cookie) {
            (FileType::Directory, 0) => Ok(true),
            (FileType::Directory, _) => Err(Error::BadCookie),
            _ => Err(Error::NotDirectory),
        }
    }

    /// A covered file cannot be opened.
    pub(crate) fn refusal(&self, lookup: bool) -> Error {
        match (self.file_type, lookup) {
            (FileType::Directory, true) => Error::NotFound,
            (FileType::Directory, false) => Error::IsDirectory,
            (_, true) => Error::NotDirectory,
            (_, false) => Error::Access,
        }
    }
}

fn covered(directory: &Node, inode: u64, kind: fs::FileType) -> Covered {
    let file_type = match kind {
        fs::FileType::Directory | fs::FileType::Unknown => FileType::Directory,
        // Other covered files appear as empty regular files.
        _ => FileType::Regular,
    };
    Covered { directory: directory.id, inode, file_type }
}

pub(crate) fn is_mount_point(directory: &Node, name: &CStr) -> bool {
    open_within(directory, name, ResolveFlags::empty()).is_err_and(|errno| errno == Errno::XDEV)
}
