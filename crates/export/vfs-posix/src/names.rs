//! Create, mkdir, link, remove, rename: each is one system call by the caller.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, OFlags, Statx};
use rustix::io::Errno;
use vouch_vfs::{
    AccessOverride, Attributes, Blocking, Caller, CreateHow, Created, DirectoryChange, Error,
    FileId, FileType, FilesToRename, Name, NewNode, OpenAccess, Renamed, Result, SetAttributes,
    SetTime, Time, mutant,
};

use crate::attributes::{file_type, stat, stat_name};
use crate::c_name::CName;
use crate::covered_directory::is_mount_point;
use crate::directory_lock;
use crate::errno::{OrError, error};
use crate::export::{Inner, identify};
use crate::identity;
use crate::incomplete_file::remove_if_same_file;
use crate::node::Node;
use crate::open::PosixOpen;
use crate::quota::usage::counted;

impl Inner {
    pub(crate) fn changeable(&self) -> Result<()> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Returns the change attribute before and after. Other processes may interfere, so the change
    /// is never atomic.
    fn changing<T>(
        &self,
        directory: &Node,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<(T, DirectoryChange)> {
        let before = directory.change();
        let made = {
            let _space = directory.growing();
            change()?
        };
        directory.note_change();
        let mut after = directory.change();
        if after == before && directory.mount.fine_times {
            // tmpfs gives a directory the ctime of the linked file, which may equal the old one. An
            // empty chown updates ctime alone.
            fs::chownat(directory, c"", None, None, AtFlags::EMPTY_PATH).or_error()?;
            after = directory.change();
        }
        Ok((made, DirectoryChange { before, after, atomic: false }))
    }

    pub(crate) fn create(
        self: &Arc<Self>,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        how: CreateHow,
        set: &SetAttributes,
        access: OpenAccess,
    ) -> Result<Created> {
        let directory = self.node(directory)?;
        let name = CName::new(name);
        identity::assume(caller)?;
        let before = directory.change();
        let (node, open, new) = self.create_or_open(caller, &directory, &name, how, set, access)?;
        if new {
            directory.note_change();
        }
        let change = DirectoryChange { before, after: directory.change(), atomic: false };
        Ok(Created { id: node.id, attributes: node.attributes()?, open, new, directory: change })
    }

    /// The file, open, and whether it is new.
    fn create_or_open(
        self: &Arc<Self>,
        caller: &Caller,
        directory: &Arc<Node>,
        name: &CName,
        how: CreateHow,
        set: &SetAttributes,
        access: OpenAccess,
    ) -> Result<(Arc<Node>, Arc<dyn vouch_vfs::OpenFile>, bool)> {
        for _ in 0..CREATE_TRIES {
            let space = directory.growing();
            let made = if self.options.read_only {
                Err(Errno::ROFS)
            } else if directory.mount.usage.is_exceeded() && !has_name(directory, name) {
                Err(Errno::DQUOT)
            } else {
                self.create_file(directory, name, set, access)
            };
            drop(space);
            match made {
                Ok(fd) => {
                    let node = self.set_up(caller, directory, name, &fd, how, set)?;
                    let open = PosixOpen::begin(self, Arc::clone(&node), fd, access, caller);
                    return Ok((node, open, true));
                }
                Err(errno @ (Errno::EXIST | Errno::ROFS)) => {
                    match self.open_existing(caller, directory, name, how, set, access) {
                        // Removed meanwhile. Overlayfs and CephFS then give ESTALE.
                        Err(Error::NotFound | Error::Stale) if errno == Errno::EXIST => {}
                        opened => return opened.map(|(node, open)| (node, open, false)),
                    }
                }
                Err(errno) => return Err(error(errno)),
            }
        }
        Err(Error::NameChanged)
    }

    fn create_file(
        &self,
        directory: &Node,
        name: &CName,
        set: &SetAttributes,
        access: OpenAccess,
    ) -> std::result::Result<OwnedFd, Errno> {
        // A new file grants any access. Without one it is opened for reading only.
        let flags = access_flags(access)
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(u32::from(set.mode.unwrap_or(0)) & 0o7777);
        identity::with_umask(set.umask, || fs::openat(directory, &**name, flags, mode))
    }

    /// Verifier, attributes, node. A failure removes the file.
    fn set_up(
        &self,
        caller: &Caller,
        directory: &Arc<Node>,
        name: &CName,
        fd: &OwnedFd,
        how: CreateHow,
        set: &SetAttributes,
    ) -> Result<Arc<Node>> {
        let set_up = || {
            let id = identify(fd.as_fd(), &directory.mount).or_error()?;
            let path = self.reopen(fd.as_fd(), OFlags::PATH).or_error()?;
            let node = self.nodes.keep(Node::new(
                id,
                FileType::Regular,
                Arc::clone(&directory.mount),
                path,
            ));
            let mut rest = SetAttributes {
                mode: None,
                mode_mask: None,
                umask: None,
                size: set.size.filter(|&size| size > 0),
                ..*set
            };
            if let CreateHow::Exclusive(verifier) = how {
                let (accessed, modified) = times_of(verifier);
                (rest.accessed, rest.modified) =
                    (Some(SetTime::To(accessed)), Some(SetTime::To(modified)));
            }
            self.set_new(caller, &node, fd, &rest)?;
            Ok(node)
        };
        let node = set_up().inspect_err(|_| {
            let _locked = directory_lock::lock(&directory.id, self.home(&directory.id));
            let _ = stat(fd.as_fd()).map(|made| remove_if_same_file(directory, name, &made));
        })?;
        node.count_new();
        self.note(&node.id, directory, name);
        Ok(node)
    }

    fn open_existing(
        self: &Arc<Self>,
        caller: &Caller,
        directory: &Arc<Node>,
        name: &CName,
        how: CreateHow,
        set: &SetAttributes,
        access: OpenAccess,
    ) -> Result<(Arc<Node>, Arc<dyn vouch_vfs::OpenFile>)> {
        let (node, stat) = match self.child(directory, name, true, Blocking::Allowed) {
            Err(Error::NotFound) if self.options.read_only => return Err(Error::ReadOnly),
            // A mount point has this name, even if the export does not show it.
            Err(Error::Access)
                if how != CreateHow::Unchecked && is_mount_point(directory, name) =>
            {
                return Err(Error::Exists);
            }
            found => found?,
        };
        let mut access_override = AccessOverride::None;
        match how {
            CreateHow::Guarded => return Err(Error::Exists),
            CreateHow::Exclusive(verifier) => {
                let attributes = node.attributes_of(&stat)?;
                let retry = node.file_type == FileType::Regular && attributes.size == 0;
                if mutant("exclusive-create-ignores-verifier") {
                    let open =
                        self.open_node(caller, &node, access, AccessOverride::Owner, false)?;
                    return Ok((node, open));
                }
                if !retry
                    || (attributes.accessed, attributes.modified) != times_of(verifier)
                    || attributes.uid != caller.uid
                {
                    return Err(Error::Exists);
                }
                access_override = AccessOverride::Owner;
            }
            CreateHow::Unchecked => {}
        }
        let truncates = how == CreateHow::Unchecked && set.size == Some(0);
        let open = self.open_node(caller, &node, access, access_override, truncates)?;
        Ok((node, open))
    }

    pub(crate) fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        new: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)> {
        self.changeable()?;
        let directory = self.node(directory)?;
        let name = CName::new(name);
        identity::assume(caller)?;
        if directory.mount.usage.is_exceeded() && !has_name(&directory, &name) {
            return Err(Error::Quota);
        }
        let raw = u32::from(set.mode.unwrap_or(0)) & 0o7777;
        let mode = Mode::from_raw_mode(raw);
        let node_of = |kind, (major, minor)| {
            fs::mknodat(&directory, &*name, kind, mode, fs::makedev(major, minor))
        };
        let _locked = directory_lock::lock(&directory.id, self.home(&directory.id));
        let (node, change) = self.changing(&directory, || {
            identity::with_umask(set.umask, || match new {
                NewNode::Directory if mutant("mkdir-accepts-existing-name") => {
                    fs::mkdirat(&directory, &*name, mode).or_else(|errno| match errno {
                        Errno::EXIST => Ok(()),
                        errno => Err(errno),
                    })
                }
                NewNode::Directory => fs::mkdirat(&directory, &*name, mode),
                NewNode::Symlink(b"") => Err(Errno::INVAL),
                NewNode::Symlink(target) => fs::symlinkat(target, &directory, &*name),
                NewNode::BlockDevice(major, minor) => {
                    node_of(fs::FileType::BlockDevice, (major, minor))
                }
                NewNode::CharDevice(major, minor) => {
                    node_of(fs::FileType::CharacterDevice, (major, minor))
                }
                NewNode::Fifo => node_of(fs::FileType::Fifo, (0, 0)),
                NewNode::Socket => node_of(fs::FileType::Socket, (0, 0)),
            })
            .or_error()?;
            let is_directory = new == NewNode::Directory;
            let made = stat_name(directory.as_fd(), &name).or_error()?;
            let set_up = || {
                let (node, _) = self.child(&directory, &name, true, Blocking::Allowed)?;
                // mkdir takes only permission bits and the sticky bit.
                let lost = if is_directory { raw & 0o6000 } else { 0 };
                let mode = (lost != 0).then_some((lost as u16, lost as u16));
                let rest = SetAttributes {
                    mode: mode.map(|mode| mode.0),
                    mode_mask: mode.map(|mode| mode.1),
                    umask: None,
                    size: None,
                    ..*set
                };
                if !rest.is_empty() {
                    self.set(caller, &node, None, &rest)?;
                }
                node.count_new();
                Ok(node)
            };
            set_up().inspect_err(|_| {
                let _ = remove_if_same_file(&directory, &name, &made);
            })
        })?;
        Ok((node.id, node.attributes()?, change))
    }

    pub(crate) fn link(
        &self,
        caller: &Caller,
        id: &FileId,
        directory: &FileId,
        name: Name<'_>,
    ) -> Result<DirectoryChange> {
        self.changeable()?;
        let node = self.node(id)?;
        let directory = self.node(directory)?;
        if node.file_type == FileType::Directory {
            return Err(Error::Permission);
        }
        let name = CName::new(name);
        identity::assume(caller)?;
        let (descriptors, number) = self.descriptor_name(node.as_fd());
        let ((), change) = self.changing(&directory, || {
            let _changing = node.changing();
            if mutant("link-replaces-existing-name") {
                let _ = fs::unlinkat(&directory, &*name, AtFlags::empty());
            }
            fs::linkat(descriptors, number.as_c_str(), &directory, &*name, AtFlags::SYMLINK_FOLLOW)
                .or_error()
        })?;
        self.note(id, &directory, &name);
        Ok(change)
    }

    pub(crate) fn remove(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        expected: Option<&FileId>,
    ) -> Result<(DirectoryChange, Option<FileId>)> {
        self.changeable()?;
        let directory = self.node(directory)?;
        let name = CName::new(name);
        identity::assume(caller)?;
        let _locked = directory_lock::lock(&directory.id, self.home(&directory.id));
        let (victim, change) = self.changing(&directory, || {
            let victim = self.file_losing_name(&directory, &name)?.ok_or(Error::NotFound)?;
            if expected.is_some_and(|expected| *expected != victim.id) {
                return Err(Error::NameChanged);
            }
            let flags = if victim.is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            fs::unlinkat(&directory, &*name, flags).or_error()?;
            Ok(victim)
        })?;
        Ok((change, self.note_removed_name(&directory, victim)))
    }

    pub(crate) fn rename(
        &self,
        caller: &Caller,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
        expected: Option<&FilesToRename>,
    ) -> Result<Renamed> {
        self.changeable()?;
        let from = self.node(from)?;
        let to = self.node(to)?;
        let (from_name, to_name) = (CName::new(from_name), CName::new(to_name));
        identity::assume(caller)?;
        let _locked =
            directory_lock::lock_both((&from.id, self.home(&from.id)), (&to.id, self.home(&to.id)));
        if self.options.ids.is_some() {
            // Notes the new name in the name store.
            self.child(&from, &from_name, true, Blocking::Allowed)?;
        }
        let ((victim, to_change), from_change) = self.changing(&from, || {
            self.changing(&to, || {
                let victim = self.file_losing_name(&to, &to_name)?;
                let moved = self.file_losing_name(&from, &from_name)?.ok_or(Error::NotFound)?;
                let replaced = victim.as_ref().map(|victim| victim.id);
                if expected.is_some_and(|expected| {
                    *expected != FilesToRename { moved: moved.id, replaced }
                }) {
                    return Err(Error::NameChanged);
                }
                if mutant("rename-refuses-existing-name") && victim.is_some() {
                    return Err(Error::Exists);
                }
                if mutant("rename-removes-target-first") && victim.is_some() {
                    let _ = fs::unlinkat(&to, &*to_name, AtFlags::empty());
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                if mutant("rename-keeps-old-name") && !moved.is_directory {
                    let _ = fs::unlinkat(&to, &*to_name, AtFlags::empty());
                    fs::linkat(&from, &*from_name, &to, &*to_name, AtFlags::empty()).or_error()?;
                    return Ok(victim.filter(|victim| victim.id != moved.id));
                }
                fs::renameat(&from, &*from_name, &to, &*to_name).or_error()?;
                if let Some(node) = self.nodes.get(&moved.id) {
                    node.note_change();
                }
                self.note(&moved.id, &to, &to_name);
                Ok(victim.filter(|victim| victim.id != moved.id))
            })
        })?;
        Ok(Renamed {
            from: from_change,
            to: to_change,
            replaced: victim.and_then(|victim| self.note_removed_name(&to, victim)),
        })
    }

    fn file_losing_name(&self, directory: &Node, name: &CName) -> Result<Option<FileLosingName>> {
        let found = self
            .identify_within(directory, name)
            .and_then(|id| Ok((id, stat_name(directory.as_fd(), name)?)));
        let (id, stat) = match found {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::XDEV) => return Err(Error::Busy),
            Err(errno) => return Err(error(errno)),
        };
        let is_directory = file_type(&stat) == Some(FileType::Directory);
        let last = is_directory || stat.stx_nlink == 1;
        Ok(Some(FileLosingName { id, is_directory, last, stat }))
    }

    /// Returns the file's identity if that was its last name.
    fn note_removed_name(&self, directory: &Node, victim: FileLosingName) -> Option<FileId> {
        let known = self.nodes.get(&victim.id);
        let links =
            known.as_ref().and_then(|node| stat(node.as_fd()).ok()).map(|stat| stat.stx_nlink);
        let gone = links.map_or(victim.last, |links| links == 0);
        if let Some(node) = &known {
            node.note_change();
        }
        if !gone {
            return None;
        }
        match &known {
            Some(node) => {
                node.note_unlinked();
                if !self.nodes.is_open(&victim.id) {
                    node.count_removed();
                }
            }
            None => directory.mount.usage.change(&victim.stat, counted(&victim.stat), 0),
        }
        self.nodes.forget(&victim.id);
        if let Some(ids) = &self.options.ids {
            ids.forget(&victim.id);
        }
        Some(victim.id)
    }
}

struct FileLosingName {
    id: FileId,
    is_directory: bool,
    last: bool,
    stat: Statx,
}

fn has_name(directory: &Node, name: &CName) -> bool {
    stat_name(directory.as_fd(), name).is_ok()
}

/// Without an access, the file is opened for reading and its methods refuse.
pub(crate) fn access_flags(access: OpenAccess) -> OFlags {
    match (access.read, access.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    }
}

/// Each time another client makes the name before, and removes it after.
const CREATE_TRIES: usize = 64;

/// An exclusive creation's verifier as file times, which survive a restart: each half as 31-bit
/// seconds, like the kernel's server.
fn times_of(verifier: [u8; 8]) -> (Time, Time) {
    let (first, second) = verifier.split_at(4);
    let time = |half: &[u8]| {
        let seconds = half.iter().fold(0i64, |sum, &byte| sum << 8 | i64::from(byte)) & 0x7fff_ffff;
        Time { seconds, nanos: 0 }
    };
    (time(first), time(second))
}
