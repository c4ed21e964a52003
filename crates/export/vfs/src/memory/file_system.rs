use std::ops::ControlFlow;
use std::sync::Arc;

use super::data::{Data, SIZE_MAX};
use super::directory::Directory;
use super::names::LINKS_MAX;
use super::open::MemoryOpen;
use super::rights::{self, EXECUTE, READ, WRITE};
use super::state::{Inode, Node, ROOT, State};
use super::{Call, MemoryFs, acl};
use crate::{
    Access, AccessOverride, Attributes, Blocking, Caller, ChangeListener, CreateHow, Created,
    DirectoryChange, DirectoryEntry, DirectoryWatch, Error, FileId, FileSystem, FileType,
    FilesToRename, Home, NAME_LEN_MAX, Name, NewNode, OpenAccess, OpenFile, PosixAcl, PosixAclKind,
    Quota, Renamed, Result, SetAttributes, Space, SystemId, Traits, XattrHow,
};

const XATTR_LEN_MAX: usize = 65_536;

type Entry = (u64, Vec<u8>, u64, Option<Result<(FileId, Attributes)>>);

impl MemoryFs {
    fn begin(&self, call: Call, id: &FileId) -> Result<(parking_lot::MutexGuard<'_, State>, u64)> {
        self.inner.injected_fault(call, id)?;
        if self.is_removed(id) {
            return Err(Error::Stale);
        }
        let number = self.inner.number_of(id)?;
        let state = self.inner.state.lock();
        state.get(number)?;
        Ok((state, number))
    }

    fn find(&self, state: &State, number: u64) -> Result<(FileId, Attributes)> {
        Ok((self.inner.id(number), state.get(number)?.attributes()))
    }

    fn named(&self, state: &State, directory: u64, name: Name<'_>) -> Result<Option<FileId>> {
        let found = state.get(directory)?.directory()?.get(name.as_bytes());
        Ok(found.map(|number| self.inner.id(number)))
    }

    fn entries_after(
        &self,
        caller: &Caller,
        number: u64,
        cookie: u64,
        with_files: bool,
    ) -> Result<Vec<Entry>> {
        let state = self.inner.state.lock();
        let inode = state.get(number)?;
        let entries = inode.directory()?;
        rights::check_access(caller, inode, READ)?;
        if !entries.knows(cookie) {
            return Err(Error::BadCookie);
        }
        let reachable = rights::check_access(caller, inode, EXECUTE).is_ok();
        let file = |file_number| {
            with_files.then(|| {
                if reachable { self.find(&state, file_number) } else { Err(Error::Access) }
            })
        };
        let after = entries.after(cookie).take(100);
        Ok(after
            .map(|(cookie, name, file_number)| {
                (cookie, name.to_vec(), file_number, file(file_number))
            })
            .collect())
    }

    fn xattrs_of<'a>(
        &self,
        state: &'a State,
        caller: &Caller,
        number: u64,
        right: u8,
    ) -> Result<&'a Inode> {
        let inode = state.get(number)?;
        if right == WRITE {
            state.writable()?;
            if !matches!(inode.file_type(), FileType::Regular | FileType::Directory) {
                return Err(Error::Permission);
            }
            if inode.file_type() == FileType::Directory && inode.mode & rights::STICKY != 0 {
                rights::own(caller, inode)?;
            }
        }
        rights::check_access(caller, inode, right)?;
        Ok(inode)
    }
}

impl FileSystem for MemoryFs {
    fn traits(&self) -> Traits {
        Traits {
            read_only: self.inner.state.lock().read_only,
            file_size_max: SIZE_MAX,
            links_max: LINKS_MAX,
            name_len_max: NAME_LEN_MAX as u32,
            xattrs: true,
            acls: true,
            labels: true,
            uncacheable: false,
            clone_block_len: super::data::PAGE_LEN as u32,
            sparse: true,
            change_grows: true,
            persistent_ids: true,
            unique_ids: true,
        }
    }

    fn root(&self) -> FileId {
        self.inner.id(ROOT)
    }

    fn remote_system(&self) -> Option<SystemId> {
        self.inner.remote_system()
    }

    fn listing_system(&self, _directory: &FileId) -> Option<SystemId> {
        self.inner.listing_system()
    }

    fn home(&self, id: &FileId) -> Home {
        let home_callback = self.inner.home_callback.lock().clone();
        home_callback.iter().for_each(|home_callback| home_callback(id));
        if self.without == Some(*id) {
            return Home { system: SystemId::UNKNOWN, own_from: 0 };
        }
        Home { system: SystemId::of_memory(self.inner.number), own_from: 0 }
    }

    fn attributes(&self, id: &FileId, blocking: Blocking) -> Result<Attributes> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::Attributes, id)?;
        Ok(state.get(number)?.attributes())
    }

    fn access(
        &self,
        caller: &Caller,
        id: &FileId,
        wanted: Access,
        blocking: Blocking,
    ) -> Result<Access> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::Access, id)?;
        let inode = state.get(number)?;
        let is_directory = inode.file_type() == FileType::Directory;
        Ok(wanted.granted_by(is_directory, |bits| {
            let is_refused = state.read_only && bits & WRITE != 0;
            !is_refused && rights::check_access(caller, inode, bits).is_ok()
        }))
    }

    fn lookup(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        blocking: Blocking,
    ) -> Result<(FileId, Attributes)> {
        self.inner.check_blocking(blocking)?;
        let (mut state, number) = self.begin(Call::Lookup, directory)?;
        let inode = state.get_mut(number)?;
        if inode.cold && blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        inode.cold = false;
        let entries = inode.directory()?;
        rights::check_access(caller, inode, EXECUTE)?;
        let found = entries.get(name.as_bytes()).ok_or(Error::NotFound)?;
        self.find(&state, found)
    }

    fn parent(&self, caller: &Caller, directory: &FileId, blocking: Blocking) -> Result<FileId> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::Parent, directory)?;
        let inode = state.get(number)?;
        let parent = inode.directory()?.parent;
        rights::check_access(caller, inode, EXECUTE)?;
        if number == ROOT { Err(Error::NotFound) } else { Ok(self.inner.id(parent)) }
    }

    fn read_link(&self, _caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<u8>> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::ReadLink, id)?;
        if let Node::Symlink(target) = &state.get(number)?.node {
            Ok(target.clone())
        } else {
            Err(Error::Invalid)
        }
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
        self.inner.check_blocking(blocking)?;
        let (mut state, number) = self.begin(Call::ReadDirectory, directory)?;
        let inode = state.get_mut(number)?;
        if inode.cold && blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        inode.cold = false;
        drop(state);
        let mut cookie = cookie;
        loop {
            let entries = self.entries_after(caller, number, cookie, with_files)?;
            if entries.is_empty() {
                return Ok(true);
            }
            for (next, name, file_number, file) in entries {
                if each(DirectoryEntry { name: &name, cookie: next, file_number, file }).is_break()
                {
                    return Ok(false);
                }
                cookie = next;
            }
        }
    }

    fn open(
        &self,
        caller: &Caller,
        id: &FileId,
        access: OpenAccess,
        access_override: AccessOverride,
        blocking: Blocking,
    ) -> Result<Arc<dyn OpenFile>> {
        self.inner.check_blocking(blocking)?;
        let (mut state, number) = self.begin(Call::Open, id)?;
        let inode = state.get(number)?;
        inode.data()?;
        if access.write {
            state.writable()?;
        }
        let keeps_access = access_override == AccessOverride::Proven
            || access_override == AccessOverride::Owner && caller.uid == inode.uid;
        let executes = access_override >= AccessOverride::Execute
            && !access.write
            && rights::check_access(caller, inode, EXECUTE).is_ok();
        if !keeps_access && !executes {
            rights::check_access(
                caller,
                inode,
                if access.read { READ } else { 0 } | if access.write { WRITE } else { 0 },
            )?;
        }
        MemoryOpen::begin(&self.inner, &mut state, number, access, caller)
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
        let (mut state, number) = self.begin(Call::Create, directory)?;
        let parent = state.get(number)?;
        let before = parent.change;
        let entries = parent.directory()?;
        rights::check_access(caller, parent, EXECUTE)?;
        let found = entries.get(name.as_bytes());
        let file = match found {
            Some(file) => {
                let inode = state.get(file)?;
                match how {
                    CreateHow::Guarded => return Err(Error::Exists),
                    CreateHow::Exclusive(verifier) if inode.verifier != Some(verifier) => {
                        return Err(Error::Exists);
                    }
                    CreateHow::Exclusive(_) => {}
                    CreateHow::Unchecked => {
                        inode.data()?;
                        let truncates = attributes.size == Some(0);
                        let writes = access.write || truncates;
                        rights::check_access(
                            caller,
                            inode,
                            if access.read { READ } else { 0 } | if writes { WRITE } else { 0 },
                        )?;
                        if truncates {
                            state.set(
                                caller,
                                file,
                                true,
                                &SetAttributes { size: Some(0), ..SetAttributes::default() },
                            )?;
                        } else if access.write {
                            state.writable()?;
                        }
                    }
                }
                file
            }
            None => {
                let file = state.add_named(
                    caller,
                    number,
                    name.as_bytes(),
                    Node::Regular(Data::default()),
                    attributes,
                )?;
                if let CreateHow::Exclusive(verifier) = how {
                    state.get_mut(file)?.verifier = Some(verifier);
                }
                file
            }
        };
        let open = MemoryOpen::begin(&self.inner, &mut state, file, access, caller)?;
        let change = DirectoryChange { before, after: state.change_of(number), atomic: true };
        let (id, attributes) = self.find(&state, file)?;
        Ok(Created { id, attributes, open, new: found.is_none(), directory: change })
    }

    fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        node: NewNode<'_>,
        attributes: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)> {
        let (mut state, number) = self.begin(Call::Make, directory)?;
        let device = matches!(node, NewNode::BlockDevice(..) | NewNode::CharDevice(..));
        if device && caller.uid != 0 {
            return Err(Error::Permission);
        }
        let node = match node {
            NewNode::Directory => Node::Directory(Directory::new(number)),
            NewNode::Symlink(b"") => return Err(Error::Invalid),
            NewNode::Symlink(target) if target.len() > 4095 => return Err(Error::NameTooLong),
            NewNode::Symlink(target) => Node::Symlink(target.to_vec()),
            NewNode::BlockDevice(major, minor) => {
                Node::Device(FileType::BlockDevice, (major, minor))
            }
            NewNode::CharDevice(major, minor) => Node::Device(FileType::CharDevice, (major, minor)),
            NewNode::Fifo => Node::Plain(FileType::Fifo),
            NewNode::Socket => Node::Plain(FileType::Socket),
        };
        let (made, change) = state.changing(number, |state| {
            state.add_named(caller, number, name.as_bytes(), node, attributes)
        })?;
        let (id, attributes) = self.find(&state, made)?;
        Ok((id, attributes, change))
    }

    fn link(
        &self,
        caller: &Caller,
        id: &FileId,
        directory: &FileId,
        name: Name<'_>,
    ) -> Result<DirectoryChange> {
        let (mut state, number) = self.begin(Call::Link, id)?;
        let directory = self.inner.number_of(directory)?;
        Ok(state
            .changing(directory, |state| state.link(caller, number, directory, name.as_bytes()))?
            .1)
    }

    fn remove(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        expected: Option<&FileId>,
    ) -> Result<(DirectoryChange, Option<FileId>)> {
        let (mut state, number) = self.begin(Call::Remove, directory)?;
        let found = self.named(&state, number, name)?;
        if expected.zip(found).is_some_and(|(expected, found)| *expected != found) {
            return Err(Error::NameChanged);
        }
        let (gone, change) =
            state.changing(number, |state| state.remove(caller, number, name.as_bytes()))?;
        Ok((change, gone.map(|gone| self.inner.id(gone))))
    }

    fn remove_incomplete(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        id: &FileId,
    ) -> Result<()> {
        let (mut state, number) = self.begin(Call::Remove, directory)?;
        let made = self.inner.number_of(id)?;
        if state.get(number)?.directory()?.get(name.as_bytes()) != Some(made) {
            return Ok(());
        }
        match state.remove(caller, number, name.as_bytes()) {
            Err(Error::NotEmpty) => Ok(()),
            removed => removed.map(drop),
        }
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
        let (mut state, from) = self.begin(Call::Rename, from)?;
        let to = self.inner.number_of(to)?;
        let replaced = self.named(&state, to, to_name)?;
        let found =
            self.named(&state, from, from_name)?.map(|moved| FilesToRename { moved, replaced });
        if expected.zip(found).is_some_and(|(expected, found)| *expected != found) {
            return Err(Error::NameChanged);
        }
        let ((replaced, to), from) = state.changing(from, |state| {
            state.changing(to, |state| {
                state.rename(caller, from, from_name.as_bytes(), to, to_name.as_bytes())
            })
        })?;
        Ok(Renamed { from, to, replaced: replaced.map(|number| self.inner.id(number)) })
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        id: &FileId,
        open: Option<&dyn OpenFile>,
        set: &SetAttributes,
    ) -> Result<()> {
        let (mut state, number) = self.begin(Call::SetAttributes, id)?;
        let open = open
            .and_then(|open| Some((open.access(), open.as_any().downcast_ref::<MemoryOpen>()?)));
        let open = open.is_some_and(|(access, open)| {
            access.write && open.number == number && open.is_of(&self.inner)
        });
        state.set(caller, number, open, set)
    }

    fn space(&self, _caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Space> {
        self.inner.check_blocking(blocking)?;
        let (state, _) = self.begin(Call::Space, id)?;
        Ok(state.space())
    }

    fn set_quota(&self, limit: Option<u64>) -> Result<()> {
        self.inner.state.lock().quota = limit;
        Ok(())
    }

    fn quota(&self) -> Option<Quota> {
        self.inner.state.lock().quota()
    }

    fn acl(
        &self,
        _caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        blocking: Blocking,
    ) -> Result<PosixAcl> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::Acl, id)?;
        let inode = state.get(number)?;
        Ok(if kind == PosixAclKind::Access { inode.acl.clone() } else { inode.default_acl.clone() })
    }

    fn set_acl(
        &self,
        caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        acl: &PosixAcl,
    ) -> Result<()> {
        let (mut state, number) = self.begin(Call::Acl, id)?;
        state.writable()?;
        let inode = state.get_mut(number)?;
        rights::own(caller, inode)?;
        if !acl.entries.is_empty() {
            acl::validate(acl)?;
        }
        acl::set(caller, inode, kind, acl)?;
        state.touch(number);
        Ok(())
    }

    fn label(&self, id: &FileId, _blocking: Blocking) -> Result<Vec<u8>> {
        let number = self.begin(Call::Xattr, id)?.1;
        self.inner.labels.lock().get(&number).cloned().ok_or(Error::NoXattr)
    }

    fn set_label(&self, caller: &Caller, id: &FileId, label: &[u8]) -> Result<()> {
        let (mut state, number) = self.begin(Call::Xattr, id)?;
        rights::own(caller, state.get(number)?)?;
        self.inner.labels.lock().insert(number, label.to_vec());
        state.touch(number);
        Ok(())
    }

    fn xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        blocking: Blocking,
    ) -> Result<Vec<u8>> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::Xattr, id)?;
        self.xattrs_of(&state, caller, number, READ)?
            .xattrs
            .get(name)
            .cloned()
            .ok_or(Error::NoXattr)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        let (mut state, number) = self.begin(Call::Xattr, id)?;
        let there = self.xattrs_of(&state, caller, number, WRITE)?.xattrs.contains_key(name);
        match how {
            _ if name.is_empty() || name.contains(&0) => return Err(Error::Invalid),
            _ if name.len() + "user.".len() > NAME_LEN_MAX => return Err(Error::NameTooLong),
            _ if value.len() > XATTR_LEN_MAX => return Err(Error::XattrTooLarge),
            XattrHow::Create if there => return Err(Error::Exists),
            XattrHow::Replace if !there => return Err(Error::NoXattr),
            _ => {}
        }
        state.get_mut(number)?.xattrs.insert(name.to_vec(), value.to_vec());
        state.touch(number);
        Ok(())
    }

    fn remove_xattr(&self, caller: &Caller, id: &FileId, name: &[u8]) -> Result<()> {
        let (mut state, number) = self.begin(Call::Xattr, id)?;
        self.xattrs_of(&state, caller, number, WRITE)?;
        state.get_mut(number)?.xattrs.remove(name).ok_or(Error::NoXattr)?;
        state.touch(number);
        Ok(())
    }

    fn xattrs(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<Vec<u8>>> {
        self.inner.check_blocking(blocking)?;
        let (state, number) = self.begin(Call::Xattr, id)?;
        Ok(self.xattrs_of(&state, caller, number, READ)?.xattrs.keys().cloned().collect())
    }

    fn sync_metadata(&self, ids: &[FileId], blocking: Blocking) -> Result<()> {
        self.inner.check_blocking(blocking)?;
        ids.iter().try_for_each(|id| self.inner.injected_fault(Call::SyncMetadata, id))?;
        self.inner.sync(ids, blocking)
    }

    fn syncs_together(&self, _ids: &[FileId]) -> bool {
        self.inner.state.lock().slow_sync
    }

    fn watch_directory(&self, _id: &FileId, _changed: ChangeListener) -> Result<DirectoryWatch> {
        Ok(Box::new(()))
    }

    fn path(&self, id: &FileId) -> Option<Vec<u8>> {
        let (state, mut names) = (self.inner.state.lock(), Vec::new());
        let mut number = self.inner.number_of(id).ok()?;
        while number != ROOT {
            let parent = state.get(number).ok()?.directory().ok()?.parent;
            names.push(state.get(parent).ok()?.directory().ok()?.name_of(number)?.to_vec());
            number = parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    fn has_removed_files(&self) -> bool {
        let removed = *self.inner.removed.lock();
        let number = removed.and_then(|id| self.inner.number_of(&id).ok());
        number.is_some_and(|number| {
            self.inner.state.lock().inodes.get(&number).is_some_and(|inode| inode.opens > 0)
        })
    }

    fn is_removed(&self, id: &FileId) -> bool {
        *self.inner.removed.lock() == Some(*id)
    }
}
