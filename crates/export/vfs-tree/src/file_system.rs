use std::sync::Arc;

use tokio::runtime::Handle;
use vouch_tree::Content;
use vouch_tree_client::Tree;
use vouch_vfs::{
    Access, AccessOverride, Attributes, Blocking, Caller, ChangeListener, CreateHow, Created,
    DirectoryChange, DirectoryWatch, Error, FileId, FileSystem, FilesToRename, Home, NAME_LEN_MAX,
    Name, NewNode, OpenAccess, OpenFile, PosixAcl, PosixAclKind, Renamed, Result, SetAttributes,
    Space, Traits, XattrHow,
};

use crate::core::{CallContext, Core, split};
use crate::listing::EntryCallback;
use crate::node::Node;
use crate::open::TreeOpen;
use crate::rights::{self, EXECUTE, READ};

/// Read-only. Shows the newest verified revision at once.
pub struct TreeFs {
    core: Arc<Core>,
}

impl TreeFs {
    /// `runtime`: the client's multi-threaded runtime, on which calls wait.
    pub fn new(tree: Arc<Tree>, runtime: Handle) -> Self {
        TreeFs { core: Arc::new(Core::new(tree, runtime)) }
    }

    /// The tree that is exported.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.core.tree
    }

    fn with_node<T>(
        &self,
        id: &FileId,
        blocking: Blocking,
        mut work: impl FnMut(&CallContext<'_>, &Node) -> Result<T>,
    ) -> Result<T> {
        self.core.with(blocking, |call| work(call, &*call.node(id)?))
    }

    fn exists(&self, id: &FileId) -> Result<()> {
        self.with_node(id, Blocking::Allowed, |_, _| Ok(()))
    }

    /// As in POSIX, other errors of the request precede EROFS.
    fn refuse(&self, caller: &Caller, directory: &FileId) -> Error {
        let looked =
            self.with_node(directory, Blocking::Allowed, |call, directory| {
                match directory.inode.is_directory() {
                    true => call.check_access(caller, directory, EXECUTE),
                    false => Err(Error::NotDirectory),
                }
            });
        looked.err().unwrap_or(Error::ReadOnly)
    }

    fn open_node(
        &self,
        call: &CallContext<'_>,
        caller: &Caller,
        node: &Node,
        access: OpenAccess,
        access_override: AccessOverride,
    ) -> Result<Arc<dyn OpenFile>> {
        match &node.inode.content {
            Content::Regular { .. } => {}
            Content::Directory { .. } => return Err(Error::IsDirectory),
            Content::Symlink(_) => return Err(Error::IsSymlink),
            _ => return Err(Error::WrongType),
        }
        if access.write {
            return Err(Error::ReadOnly);
        }
        let keeps_access = access_override == AccessOverride::Proven
            || access_override == AccessOverride::Owner && caller.uid == node.inode.uid;
        let executes = || {
            access_override >= AccessOverride::Execute
                && call.check_access(caller, node, EXECUTE).is_ok()
        };
        if access.read && !keeps_access && !executes() {
            call.check_access(caller, node, READ)?;
        }
        Ok(Arc::new(TreeOpen::new(self.core.clone(), node.id)))
    }

    fn lookup_node(
        &self,
        call: &CallContext<'_>,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
    ) -> Result<Arc<Node>> {
        let directory = call.node(directory)?;
        if !directory.inode.is_directory() {
            return Err(Error::NotDirectory);
        }
        call.check_access(caller, &directory, EXECUTE)?;
        let entry = call.entry(&directory.inode, name.as_bytes())?.ok_or(Error::NotFound)?;
        if directory.is_opaque() {
            self.core.note_used_name(&directory.id, name.as_bytes());
        }
        call.enter(&directory, name.as_bytes(), &entry.inode)
    }
}

impl FileSystem for TreeFs {
    fn traits(&self) -> Traits {
        let has_xattrs = self.core.has_xattrs();
        Traits {
            read_only: true,
            file_size_max: i64::MAX as u64,
            links_max: u32::MAX,
            name_len_max: NAME_LEN_MAX as u32,
            xattrs: has_xattrs,
            acls: has_xattrs,
            labels: false,
            uncacheable: false,
            clone_block_len: 0,
            sparse: true,
            change_grows: false,
            persistent_ids: true,
            unique_ids: true,
        }
    }

    fn root(&self) -> FileId {
        self.core.root
    }

    fn home(&self, _: &FileId) -> Home {
        Home { system: self.core.system, own_from: 0 }
    }

    fn attributes(&self, id: &FileId, blocking: Blocking) -> Result<Attributes> {
        self.core.with(blocking, |call| Ok(self.core.attributes(&*call.node(id)?)))
    }

    fn access(
        &self,
        caller: &Caller,
        id: &FileId,
        wanted: Access,
        blocking: Blocking,
    ) -> Result<Access> {
        self.with_node(id, blocking, |call, node| {
            Ok(rights::access(caller, &node.inode, &call.acl(node, PosixAclKind::Access)?, wanted))
        })
    }

    fn lookup(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        blocking: Blocking,
    ) -> Result<(FileId, Attributes)> {
        let node =
            self.core.with(blocking, |call| self.lookup_node(call, caller, directory, name))?;
        Ok((node.id, self.core.attributes(&node)))
    }

    fn parent(&self, caller: &Caller, directory: &FileId, blocking: Blocking) -> Result<FileId> {
        self.with_node(directory, blocking, |call, node| {
            if !node.inode.is_directory() {
                return Err(Error::NotDirectory);
            }
            call.check_access(caller, node, EXECUTE)?;
            if node.path.is_empty() {
                return Err(Error::NotFound);
            }
            Ok(self.core.identities.of(split(&node.path).0, vouch_tree::FileType::Directory))
        })
    }

    fn read_link(&self, _caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<u8>> {
        self.with_node(id, blocking, |_, node| match &node.inode.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::Invalid),
        })
    }

    fn read_directory(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        blocking: Blocking,
        each: EntryCallback<'_>,
    ) -> Result<bool> {
        self.core.with(blocking, |call| {
            call.list(caller, &*call.node(directory)?, cookie, with_files, &mut *each)
        })
    }

    fn open(
        &self,
        caller: &Caller,
        id: &FileId,
        access: OpenAccess,
        access_override: AccessOverride,
        blocking: Blocking,
    ) -> Result<Arc<dyn OpenFile>> {
        self.core.with(blocking, |call| {
            self.open_node(call, caller, &*call.node(id)?, access, access_override)
        })
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
        // Existing files can be opened for reading, like open(2) with O_CREAT.
        let call = self.core.begin_call(Blocking::Allowed)?;
        let node = match self.lookup_node(&call, caller, directory, name) {
            Err(Error::NotFound) => return Err(Error::ReadOnly),
            node => node?,
        };
        match how {
            CreateHow::Guarded | CreateHow::Exclusive(_) => return Err(Error::Exists),
            CreateHow::Unchecked if attributes.size == Some(0) => return Err(Error::ReadOnly),
            CreateHow::Unchecked => {}
        }
        let open = self.open_node(&call, caller, &node, access, AccessOverride::None)?;
        let change = self.core.change(&*call.node(directory)?);
        let directory = DirectoryChange { before: change, after: change, atomic: true };
        Ok(Created {
            id: node.id,
            attributes: self.core.attributes(&node),
            open,
            new: false,
            directory,
        })
    }

    fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        _node: NewNode<'_>,
        _attributes: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)> {
        // mkdir(2) of an existing name fails with EEXIST.
        let call = self.core.begin_call(Blocking::Allowed)?;
        match self.lookup_node(&call, caller, directory, name) {
            Ok(_) => Err(Error::Exists),
            Err(Error::NotFound) => Err(Error::ReadOnly),
            Err(error) => Err(error),
        }
    }

    fn link(
        &self,
        caller: &Caller,
        id: &FileId,
        directory: &FileId,
        _name: Name<'_>,
    ) -> Result<DirectoryChange> {
        self.exists(id)?;
        Err(self.refuse(caller, directory))
    }

    fn remove(
        &self,
        caller: &Caller,
        directory: &FileId,
        _name: Name<'_>,
        _expected: Option<&FileId>,
    ) -> Result<(DirectoryChange, Option<FileId>)> {
        Err(self.refuse(caller, directory))
    }

    fn remove_incomplete(
        &self,
        caller: &Caller,
        directory: &FileId,
        _name: Name<'_>,
        _id: &FileId,
    ) -> Result<()> {
        Err(self.refuse(caller, directory))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: &FileId,
        _from_name: Name<'_>,
        to: &FileId,
        _to_name: Name<'_>,
        _expected: Option<&FilesToRename>,
    ) -> Result<Renamed> {
        match self.refuse(caller, from) {
            Error::ReadOnly => Err(self.refuse(caller, to)),
            error => Err(error),
        }
    }

    fn set_attributes(
        &self,
        _caller: &Caller,
        id: &FileId,
        _open: Option<&dyn OpenFile>,
        _set: &SetAttributes,
    ) -> Result<()> {
        self.exists(id)?;
        Err(Error::ReadOnly)
    }

    fn space(&self, _caller: &Caller, _id: &FileId, blocking: Blocking) -> Result<Space> {
        let counts = self.core.begin_call(blocking)?.revision.fsinfo.counts;
        let files = [counts.files, counts.directories, counts.symlinks, counts.others]
            .into_iter()
            .fold(0, u64::saturating_add);
        Ok(Space { bytes_total: counts.bytes, files_total: files, ..Space::default() })
    }

    fn acl(
        &self,
        _caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        blocking: Blocking,
    ) -> Result<PosixAcl> {
        self.with_node(id, blocking, |call, node| call.acl(node, kind))
    }

    fn set_acl(
        &self,
        _caller: &Caller,
        id: &FileId,
        _kind: PosixAclKind,
        _acl: &PosixAcl,
    ) -> Result<()> {
        self.exists(id)?;
        Err(Error::ReadOnly)
    }

    fn xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        blocking: Blocking,
    ) -> Result<Vec<u8>> {
        self.with_node(id, blocking, |call, node| {
            call.check_access(caller, node, READ)?;
            let value = call.xattrs(node)?.get(&[USER, name].concat()).map(<[u8]>::to_vec);
            value.ok_or(Error::NoXattr)
        })
    }

    fn set_xattr(
        &self,
        _caller: &Caller,
        id: &FileId,
        _name: &[u8],
        _value: &[u8],
        _how: XattrHow,
    ) -> Result<()> {
        self.exists(id)?;
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _caller: &Caller, id: &FileId, _name: &[u8]) -> Result<()> {
        self.exists(id)?;
        Err(Error::ReadOnly)
    }

    fn xattrs(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<Vec<u8>>> {
        let all = self.with_node(id, blocking, |call, node| {
            call.check_access(caller, node, READ)?;
            call.xattrs(node)
        })?;
        Ok(all
            .pairs()
            .iter()
            .filter_map(|(name, _)| Some(name.strip_prefix(USER)?.to_vec()))
            .collect())
    }

    fn sync_metadata(&self, _ids: &[FileId], _blocking: Blocking) -> Result<()> {
        Ok(())
    }

    fn watch_directory(&self, id: &FileId, changed: ChangeListener) -> Result<DirectoryWatch> {
        let watch = self.core.watches.add(changed);
        // After the watch, so that no new revision is missed.
        self.exists(id)?;
        Ok(watch)
    }

    fn maintain(&self) {
        self.core.check_revision();
    }

    fn path(&self, id: &FileId) -> Option<Vec<u8>> {
        if let Some(node) = self.core.nodes.get(id) {
            return Some(node.path.to_vec());
        }
        match crate::identity::Identities::place(id).ok()? {
            (_, crate::identity::Address::Path(path)) => Some(path.into()),
            _ => None,
        }
    }
}

/// The only visible name space.
const USER: &[u8] = b"user.";
