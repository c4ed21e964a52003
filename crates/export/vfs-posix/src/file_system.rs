use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{self, OFlags};
use rustix::io::Errno;
use vouch_vfs::rights::{EXECUTE, READ};
use vouch_vfs::{
    Access, AccessOverride, Attributes, Blocking, Caller, ChangeListener, CreateHow, Created,
    DirectoryChange, DirectoryEntry, DirectoryWatch, Error, FileId, FileSystem, FileType,
    FilesToRename, Home, Name, NewNode, OpenAccess, OpenFile, PosixAcl, PosixAclKind, Quota,
    Renamed, Result, SetAttributes, Space, SystemId, Traits, XattrHow,
};

use crate::attributes::stat;
use crate::c_name::CName;
use crate::errno::{OrError, error};
use crate::export::{Inner, PosixFs};
use crate::handle::Covered;
use crate::journal::Journal;
use crate::mount::Mount;
use crate::node::Node;
use crate::open::PosixOpen;
use crate::{access, identity, space, watch};

const SWEEP_COUNT: usize = 1024;

impl FileSystem for PosixFs {
    fn traits(&self) -> Traits {
        self.inner.traits
    }

    fn root(&self) -> FileId {
        self.inner.root.id
    }

    fn remote_system(&self) -> Option<SystemId> {
        self.inner.remote.get().copied()
    }

    fn home(&self, id: &FileId) -> Home {
        self.inner.home(id)
    }

    fn attributes(&self, id: &FileId, blocking: Blocking) -> Result<Attributes> {
        if let Some(covered) = Covered::of(id) {
            return self.inner.covered_attributes(&covered, blocking);
        }
        let node = self.inner.node_by(id, blocking)?;
        let attributes = node.attributes()?;
        if attributes.links == 0 {
            node.note_unlinked();
            if !self.inner.nodes.is_open(id) {
                self.inner.nodes.forget(id);
                return Err(Error::Stale);
            }
        }
        Ok(attributes)
    }

    fn access(
        &self,
        caller: &Caller,
        id: &FileId,
        wanted: Access,
        blocking: Blocking,
    ) -> Result<Access> {
        if let Some(covered) = Covered::of(id) {
            return Ok(covered.access(wanted));
        }
        let node = self.inner.node_by(id, blocking)?;
        identity::assume(caller)?;
        let granted = access::granted(&node, wanted)?;
        let changes = Access::MODIFY | Access::EXTEND | Access::DELETE | Access::XATTR_WRITE;
        Ok(if self.inner.options.read_only { Access(granted.0 & !changes.0) } else { granted })
    }

    fn lookup(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        blocking: Blocking,
    ) -> Result<(FileId, Attributes)> {
        if let Some(covered) = Covered::of(directory) {
            return Err(covered.refusal(true));
        }
        let directory = self.inner.node_by(directory, blocking)?;
        let name = CName::new(name);
        identity::assume(caller)?;
        let must_be_cached = blocking == Blocking::Forbidden && !directory.mount.in_memory;
        let known =
            if must_be_cached { self.inner.known_to_kernel(&directory, &name) } else { Ok(()) };
        let found = match known {
            Ok(()) => self.inner.child(&directory, &name, true, blocking),
            Err(_) if self.inner.is_known_as_covered(&directory, &name)? => Err(Error::Access),
            Err(error) => Err(error),
        };
        match found {
            Ok((node, stat)) => Ok((node.id, node.attributes_of(&stat)?)),
            Err(Error::Access) => {
                // The caller's rights: without search permission a caller learns nothing.
                identity::assume(caller)?;
                let covered = self.inner.covered_at(&directory, &name, blocking)?;
                Ok((
                    self.inner.covered_id(&covered)?,
                    self.inner.covered_attributes(&covered, blocking)?,
                ))
            }
            Err(error) => Err(error),
        }
    }

    fn parent(&self, caller: &Caller, directory: &FileId, blocking: Blocking) -> Result<FileId> {
        if let Some(covered) = Covered::of(directory) {
            return if covered.file_type == FileType::Directory {
                Ok(covered.directory)
            } else {
                Err(Error::NotDirectory)
            };
        }
        let node = self.inner.node_by(directory, blocking)?;
        // Walks down from the root by names.
        node.require_cached(blocking)?;
        if node.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        identity::assume(caller)?;
        access::require(&node, EXECUTE)?;
        self.inner.parent(&node)
    }

    fn read_link(&self, _caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<u8>> {
        let node = self.inner.node_by(id, blocking)?;
        if node.file_type != FileType::Symlink {
            return Err(Error::Invalid);
        }
        Ok(fs::readlinkat(&node, c"", Vec::with_capacity(256)).or_error()?.into_bytes())
    }

    fn read_directory(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        blocking: Blocking,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        if let Some(covered) = Covered::of(directory) {
            return covered.list(cookie, each);
        }
        self.inner.node_by(directory, blocking)?.require_cached(blocking)?;
        if blocking == Blocking::Forbidden && self.inner.crossing.is_some() {
            return Err(Error::WouldBlock);
        }
        self.inner.list(caller, directory, cookie, with_files, each)
    }

    fn open(
        &self,
        caller: &Caller,
        id: &FileId,
        access: OpenAccess,
        access_override: AccessOverride,
        blocking: Blocking,
    ) -> Result<Arc<dyn OpenFile>> {
        if let Some(covered) = Covered::of(id) {
            return Err(covered.refusal(false));
        }
        let node = self.inner.node_by(id, blocking)?;
        self.inner.open_node(caller, &node, access, access_override, false)
    }

    fn create(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        how: CreateHow,
        attributes: &SetAttributes,
        access: OpenAccess,
    ) -> Result<Created> {
        let made = self.inner.create(caller, directory, name, how, attributes, access);
        self.inner.quota_result(0, made)
    }

    fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        node: NewNode<'_>,
        attributes: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)> {
        self.inner.quota_result(0, self.inner.make(caller, directory, name, node, attributes))
    }

    fn link(
        &self,
        caller: &Caller,
        id: &FileId,
        directory: &FileId,
        name: Name<'_>,
    ) -> Result<DirectoryChange> {
        self.inner.link(caller, id, directory, name)
    }

    fn remove(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        expected: Option<&FileId>,
    ) -> Result<(DirectoryChange, Option<FileId>)> {
        self.inner.remove(caller, directory, name, expected)
    }

    fn remove_incomplete(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        id: &FileId,
    ) -> Result<()> {
        self.inner.remove_incomplete(caller, directory, name, id)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
        expected: Option<&FilesToRename>,
    ) -> Result<Renamed> {
        self.inner.rename(caller, from, from_name, to, to_name, expected)
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        id: &FileId,
        open: Option<&dyn OpenFile>,
        set: &SetAttributes,
    ) -> Result<()> {
        let node = self.inner.node(id)?;
        let open = open
            .filter(|open| open.access().write)
            .and_then(|open| open.as_any().downcast_ref::<PosixOpen>());
        let open = open.filter(|open| open.node.id == *id).map(|open| open.file.as_fd());
        self.inner.set(caller, &node, open, set)
    }

    fn space(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Space> {
        // Shares the space of its parent's file system.
        let above = Covered::of(id).map(|covered| covered.directory);
        let node = self.inner.node_by(above.as_ref().unwrap_or(id), blocking)?;
        identity::assume(caller)?;
        let counts = Arc::ptr_eq(&node.mount, &self.inner.root.mount);
        space::space(caller, &node, counts.then(|| self.quota()).flatten())
    }

    fn set_quota(&self, limit: Option<u64>) -> Result<()> {
        Inner::set_quota(&self.inner, limit)
    }

    fn quota(&self) -> Option<Quota> {
        self.inner.quota()
    }

    fn acl(
        &self,
        _caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        blocking: Blocking,
    ) -> Result<PosixAcl> {
        if Covered::of(id).is_some() {
            return Ok(PosixAcl::default());
        }
        self.inner.node_by(id, blocking)?.acl(kind)
    }

    fn set_acl(
        &self,
        caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        acl: &PosixAcl,
    ) -> Result<()> {
        self.inner.changeable()?;
        let node = self.inner.node(id)?;
        identity::assume(caller)?;
        node.set_acl(kind, acl)
    }

    fn label(&self, id: &FileId, blocking: Blocking) -> Result<Vec<u8>> {
        if Covered::of(id).is_some() {
            return Err(Error::NoXattr);
        }
        let node = self.inner.node_by(id, blocking)?;
        node.require_cached(blocking)?;
        node.label()
    }

    fn set_label(&self, caller: &Caller, id: &FileId, label: &[u8]) -> Result<()> {
        self.inner.changeable()?;
        let node = self.inner.node(id)?;
        if caller.uid != 0 && caller.uid != stat(node.as_fd()).or_error()?.stx_uid {
            return Err(Error::Permission);
        }
        let _as_root = identity::assume_root()?;
        node.set_label(label)
    }

    fn xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        blocking: Blocking,
    ) -> Result<Vec<u8>> {
        if Covered::of(id).is_some() {
            return Err(Error::NoXattr);
        }
        let node = self.inner.node_by(id, blocking)?;
        node.require_cached(blocking)?;
        identity::assume(caller)?;
        node.xattr(name)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.inner.changeable()?;
        let node = self.inner.node(id)?;
        identity::assume(caller)?;
        node.set_xattr(name, value, how)
    }

    fn remove_xattr(&self, caller: &Caller, id: &FileId, name: &[u8]) -> Result<()> {
        self.inner.changeable()?;
        let node = self.inner.node(id)?;
        identity::assume(caller)?;
        node.remove_xattr(name)
    }

    fn xattrs(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<Vec<u8>>> {
        if Covered::of(id).is_some() {
            return Ok(Vec::new());
        }
        let node = self.inner.node_by(id, blocking)?;
        node.require_cached(blocking)?;
        identity::assume(caller)?;
        // Listing needs no right in the kernel.
        access::require(&node, READ)?;
        node.xattrs()
    }

    fn sync_metadata(&self, ids: &[FileId], blocking: Blocking) -> Result<()> {
        let mut journals: Vec<Arc<Mount>> = Vec::new();
        for id in ids {
            let node = match self.inner.node(id) {
                Err(Error::Stale) => continue,
                node => node?,
            };
            if node.mount.in_memory {
                continue;
            }
            if blocking == Blocking::Forbidden {
                return Err(Error::WouldBlock);
            }
            if node.mount.journal.is_none() {
                self.inner.sync(&node, ids.len() == 1)?;
            } else if !journals.iter().any(|mount| Arc::ptr_eq(mount, &node.mount)) {
                journals.push(Arc::clone(&node.mount));
            }
        }
        for mount in journals {
            let _as_root = identity::assume_root()?;
            if mount
                .journal
                .as_ref()
                .is_some_and(|journal| journal.commit(mount.fd.as_fd()).is_ok())
            {
                continue;
            }
            // After a batch error, a sync of each file finds the error.
            for id in ids {
                match self.inner.node(id) {
                    Err(Error::Stale) => {}
                    Ok(node) if !Arc::ptr_eq(&node.mount, &mount) => {}
                    // The caller may not be able to open each file; its directory is synced
                    // elsewhere.
                    node => self.inner.sync(&*node?, true)?,
                }
            }
        }
        Ok(())
    }

    fn syncs_together(&self, ids: &[FileId]) -> bool {
        ids.iter().all(|id| {
            self.inner
                .node_by(id, Blocking::Forbidden)
                .is_ok_and(|node| node.mount.journal.is_some())
        })
    }

    fn path(&self, id: &FileId) -> Option<Vec<u8>> {
        self.inner.path_below(&*self.inner.node(id).ok()?)
    }

    fn watch_directory(&self, id: &FileId, changed: ChangeListener) -> Result<DirectoryWatch> {
        match Covered::of(id) {
            Some(_) => Err(Error::NotSupported),
            None => watch::watch(&*self.inner.node(id)?, changed),
        }
    }

    fn maintain(&self) {
        if let Some(ids) = &self.inner.options.ids {
            let _ = ids.flush();
        }
        let inner = &self.inner;
        Inner::recount_when_due(inner);
        inner.root.mount.journal.iter().for_each(Journal::close_idle_marker);
        if let Some(crossing) = &inner.crossing {
            crossing
                .mounts
                .read()
                .entered()
                .for_each(|mount| mount.journal.iter().for_each(Journal::close_idle_marker));
        }
        let skip = inner.swept.load(Ordering::Relaxed);
        for node in inner.nodes.sample(SWEEP_COUNT, skip) {
            // A file removed outside of the server must not keep its blocks.
            let gone = stat(node.as_fd()).is_ok_and(|stat| stat.stx_nlink == 0);
            if gone {
                node.note_unlinked();
                if !inner.nodes.is_open(&node.id) {
                    inner.nodes.forget(&node.id);
                }
            }
        }
        let next = skip + SWEEP_COUNT;
        inner.swept.store(if next >= inner.nodes.kept() { 0 } else { next }, Ordering::Relaxed);
    }
}

impl Inner {
    /// `alone`: without its directory.
    fn sync(&self, node: &Node, alone: bool) -> Result<()> {
        let _as_root = identity::assume_root()?;
        match node.file_type {
            FileType::Regular | FileType::Directory => {
                match self.reopen(node.as_fd(), OFlags::RDONLY) {
                    Ok(fd) => fs::fsync(fd).or_error(),
                    // A user may create files that it cannot read.
                    Err(Errno::ACCESS) => match self.reopen(node.as_fd(), OFlags::WRONLY) {
                        Ok(fd) => fs::fsync(fd).or_error(),
                        Err(_) => fs::syncfs(&node.mount.fd).or_error(),
                    },
                    Err(errno) => Err(error(errno)),
                }
            }
            // Other types cannot be opened for a sync. A new name is in its directory's
            // transaction.
            _ if !alone => Ok(()),
            _ => fs::syncfs(&node.mount.fd).or_error(),
        }
    }

    /// Below the root, now, from the kernel.
    pub(crate) fn path_below(&self, node: &Node) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStringExt;
        let _as_root = identity::assume_root().ok()?;
        let root = std::fs::read_link(Inner::descriptor_path(self.root.as_fd())).ok()?;
        let path = std::fs::read_link(Inner::descriptor_path(node.as_fd())).ok()?;
        Some(path.strip_prefix(root).ok()?.to_owned().into_os_string().into_vec())
    }
}
