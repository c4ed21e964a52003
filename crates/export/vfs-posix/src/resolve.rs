//! Takes one component at a time, by `openat2` with RESOLVE_BENEATH, NO_SYMLINKS and NO_MAGICLINKS.
//! So neither a symbolic link nor a race with a rename leads out of the directory.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags, ResolveFlags, SeekFrom, Statx};
use rustix::io::Errno;
use vouch_vfs::{Blocking, Error, FileId, Name, Result};

use crate::attributes::{file_type, stat};
use crate::c_name::CName;
use crate::errno::{OrError, error};
use crate::export::{Inner, identify};
use crate::handle::{self, Identity};
use crate::mount::{Mount, mount_id};
use crate::node::Node;
use crate::{ffi, identity};

const DEPTH_MAX: usize = 1024;

/// Keeps a name within its directory.
pub(crate) const WITHIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);

impl Inner {
    /// May leave the thread with root's identity.
    pub(crate) fn node(&self, id: &FileId) -> Result<Arc<Node>> {
        self.node_by(id, Blocking::Allowed)
    }

    /// The inode may have to be read from disk.
    pub(crate) fn node_by(&self, id: &FileId, blocking: Blocking) -> Result<Arc<Node>> {
        self.refresh_mounts(blocking)?;
        let known =
            if *id == self.root.id { Some(Arc::clone(&self.root)) } else { self.nodes.get(id) };
        match known {
            Some(node) if blocking == Blocking::Forbidden && node.mount.is_remote => {
                Err(Error::WouldBlock)
            }
            Some(node) => Ok(node),
            None if blocking == Blocking::Forbidden && !self.is_in_memory(id)? => {
                Err(Error::WouldBlock)
            }
            None => self.resolve(id),
        }
    }

    /// The name store has a disk.
    #[cold]
    fn is_in_memory(&self, id: &FileId) -> Result<bool> {
        match parsed(id)? {
            Identity::Handle(fsid, _) => {
                let mount = self.mount(fsid, Blocking::Forbidden)?;
                Ok(mount.in_memory && self.opens_by_handle(&mount))
            }
            Identity::Number | Identity::Covered => Ok(false),
        }
    }

    #[cold]
    fn resolve(&self, id: &FileId) -> Result<Arc<Node>> {
        let node = match parsed(id)? {
            Identity::Handle(fsid, handle) => {
                let mount = self.mount(fsid, Blocking::Allowed)?;
                if !self.opens_by_handle(&mount) {
                    return self.resolve_by_names(id);
                }
                let _as_root = identity::assume_root()?;
                let fd = ffi::open_by_handle(mount.fd.as_fd(), &handle).map_err(
                    |errno| match errno {
                        Errno::INVAL | Errno::OVERFLOW => Error::BadId,
                        Errno::NOENT => Error::Stale,
                        errno => error(errno),
                    },
                )?;
                let stat = stat(fd.as_fd()).or_error()?;
                self.admit(*id, mount, fd, stat)?.0
            }
            Identity::Number => return self.resolve_by_names(id),
            // Operations on covered files would change them, or need unknown data.
            Identity::Covered => return Err(Error::ReadOnly),
        };
        Ok(node)
    }

    /// Refuses a freshly opened file that was removed.
    fn admit(
        &self,
        id: FileId,
        mount: Arc<Mount>,
        fd: OwnedFd,
        stat: Statx,
    ) -> Result<(Arc<Node>, Statx)> {
        if stat.stx_nlink == 0 && !self.nodes.is_open(&id) {
            return Err(Error::Stale);
        }
        let kind = file_type(&stat).ok_or(Error::WrongType)?;
        Ok((self.nodes.keep(Node::new(id, kind, mount, fd)), stat))
    }

    fn resolve_by_names(&self, id: &FileId) -> Result<Arc<Node>> {
        let ids = self.options.ids.as_ref().ok_or(Error::Stale)?;
        let mut wanted = vec![*id];
        let mut names = Vec::new();
        let mut node = loop {
            let last = wanted.last().expect("the list starts with one element and only grows");
            let (parent, name) = ids.find(last).ok_or(Error::Stale)?;
            names.push(name);
            if parent == self.root.id {
                break Arc::clone(&self.root);
            }
            if let Some(node) = self.nodes.get(&parent) {
                break node;
            }
            if !self.needs_name_store(&parent) {
                break self.resolve(&parent)?;
            }
            if wanted.len() == DEPTH_MAX || wanted.contains(&parent) {
                return Err(Error::Stale);
            }
            wanted.push(parent);
        };
        let _as_root = identity::assume_root()?;
        while let (Some(id), Some(name)) = (wanted.pop(), names.pop()) {
            node = match self.child_with_id(&node, &name, &id)? {
                Some(child) => child,
                None => {
                    ids.forget(&id);
                    return Err(Error::Stale);
                }
            };
        }
        Ok(node)
    }

    fn child_with_id(
        &self,
        directory: &Arc<Node>,
        name: &[u8],
        id: &FileId,
    ) -> Result<Option<Arc<Node>>> {
        let name = Name::new(name).map(CName::new);
        if let Some(name) = name
            && let Ok((node, _)) = self.child(directory, &name, true, Blocking::Allowed)
            && node.id == *id
        {
            return Ok(Some(node));
        }
        let fd = self.reopen(directory.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY).or_error()?;
        fs::seek(&fd, SeekFrom::Start(0)).or_error()?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut listing = fs::RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry.or_error()?;
            let is_name = Name::new(entry.file_name().to_bytes()).is_some();
            if is_name
                && self.identify_name(directory, entry.file_name()).is_ok_and(|found| found == *id)
                && let Ok((node, _)) =
                    self.child(directory, entry.file_name(), true, Blocking::Allowed)
                && node.id == *id
            {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    pub(crate) fn identify_name(&self, directory: &Node, name: &CStr) -> Result<FileId> {
        match self.identify_within(directory, name) {
            Err(Errno::XDEV) => {
                let (fd, mount) = self.cross(directory, name, Blocking::Allowed)?;
                identify(fd.as_fd(), &mount).or_error()
            }
            id => id.or_error(),
        }
    }

    /// XDEV for a mount point. Without opening the file if handles allow.
    pub(crate) fn identify_within(
        &self,
        directory: &Node,
        name: &CStr,
    ) -> std::result::Result<FileId, Errno> {
        if directory.mount.handles {
            match ffi::name_to_handle(directory.as_fd(), name) {
                Ok((handle, mount)) if mount == directory.mount.id => {
                    return handle::id_of_handle(directory.mount.id_fsid(), &handle)
                        .ok_or(Errno::OPNOTSUPP);
                }
                // A mount point, perhaps of a file system without handles.
                Ok(_) | Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {}
                Err(errno) => return Err(errno),
            }
        }
        identify(open_within(directory, name, ResolveFlags::empty())?.as_fd(), &directory.mount)
    }

    /// The file of a name, with the thread's rights. `keep`: it will be used again soon.
    pub(crate) fn child(
        &self,
        directory: &Arc<Node>,
        name: &CStr,
        keep: bool,
        blocking: Blocking,
    ) -> Result<(Arc<Node>, Statx)> {
        if directory.mount.handles
            && let Some(node) = self.child_known(directory, name)?
        {
            let stat = stat(node.as_fd()).or_error()?;
            if stat.stx_nlink > 0 {
                self.note(&node.id, directory, name);
                return Ok((node, stat));
            }
        }
        let (fd, mount, stat) = self.open_name(directory, name, blocking)?;
        let id = identify(fd.as_fd(), &mount).or_error()?;
        self.note(&id, directory, name);
        if keep {
            return self.admit(id, mount, fd, stat);
        }
        let kind = file_type(&stat).ok_or(Error::WrongType)?;
        Ok((Node::new(id, kind, mount, fd), stat))
    }

    fn child_known(&self, directory: &Node, name: &CStr) -> Result<Option<Arc<Node>>> {
        match ffi::name_to_handle(directory.as_fd(), name) {
            Ok((handle, mount)) if mount == directory.mount.id => {
                Ok(handle::id_of_handle(directory.mount.id_fsid(), &handle)
                    .and_then(|id| self.nodes.get(&id)))
            }
            // A mount point, perhaps of a file system without handles.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => Ok(None),
            Err(errno) => Err(error(errno)),
        }
    }

    /// `WouldBlock` if a name is not in the kernel's cache, or a mount point. Before Linux 5.12 names
    /// count as cached.
    pub(crate) fn known_to_kernel(&self, directory: &Node, name: &CStr) -> Result<()> {
        match open_within(directory, name, ResolveFlags::CACHED) {
            Err(Errno::AGAIN) => Err(Error::WouldBlock),
            // Other errors show at the look-up.
            _ => Ok(()),
        }
    }

    fn open_name(
        &self,
        directory: &Node,
        name: &CStr,
        blocking: Blocking,
    ) -> Result<(OwnedFd, Arc<Mount>, Statx)> {
        let (fd, mount) = match open_within(directory, name, ResolveFlags::empty()) {
            // A bind mount of the same device is another mount.
            Err(Errno::XDEV) => self.cross(directory, name, blocking)?,
            fd => (fd.or_error()?, Arc::clone(&directory.mount)),
        };
        let stat = stat(fd.as_fd()).or_error()?;
        Ok((fd, mount, stat))
    }

    /// Found from the root downward by the kernel's path, so neither a race nor a moved directory
    /// leads elsewhere.
    pub(crate) fn parent(&self, directory: &Arc<Node>) -> Result<FileId> {
        const TRIES: usize = 4;
        if directory.id == self.root.id {
            return Err(Error::NotFound);
        }
        for _ in 0..TRIES {
            let path = self.path_below(directory).ok_or(Error::Stale)?;
            let Some(slash) = path.iter().rposition(|&byte| byte == b'/') else {
                return Ok(self.root.id);
            };
            let (above, name) = (&path[..slash], &path[slash + 1..]);
            let name = Name::new(name).map(CName::new).ok_or(Error::Stale)?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(fd) = fs::openat2(&self.root, above, flags, Mode::empty(), WITHIN) else {
                continue;
            };
            let stat = stat(fd.as_fd()).or_error()?;
            let id = mount_id(fd.as_fd()).or_error()?;
            let mount = match (self.entered(id), &self.crossing) {
                (Some(mount), _) => mount,
                (None, Some(crossing)) => self.enter_above(crossing, id)?,
                (None, None) => Arc::clone(&directory.mount),
            };
            let id = identify(fd.as_fd(), &mount).or_error()?;
            let (parent, _) = self.admit(id, mount, fd, stat)?;
            if self.identify_name(&parent, &name).is_ok_and(|found| found == directory.id) {
                return Ok(id);
            }
        }
        Err(Error::Busy)
    }

    pub(crate) fn note(&self, id: &FileId, directory: &Node, name: &CStr) {
        if let Some(ids) = &self.options.ids
            && self.needs_name_store(id)
        {
            ids.note(id, &directory.id, name.to_bytes());
        }
    }

    pub(crate) fn needs_name_store(&self, id: &FileId) -> bool {
        !identity::can_serve_others() || self.options.subtree_check || handle::is_number(id)
    }
}

/// XDEV for a mount point, without a call to the file system there.
pub(crate) fn open_within(
    directory: &Node,
    name: &CStr,
    more: ResolveFlags,
) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat2(directory, name, flags, Mode::empty(), WITHIN | ResolveFlags::NO_XDEV | more)
}

/// `Stale` for snapshots, which the export had when the identity was made.
fn parsed(id: &FileId) -> Result<Identity> {
    handle::parse(id).ok_or(if handle::is_of_snapshot(id) { Error::Stale } else { Error::BadId })
}
