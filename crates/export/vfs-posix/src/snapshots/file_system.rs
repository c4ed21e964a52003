use std::ops::ControlFlow;
use std::sync::Arc;

use vouch_vfs::{
    Access, AccessOverride, Attributes, Blocking, Caller, ChangeListener, CreateHow, Created,
    DirectoryChange, DirectoryEntry, DirectoryWatch, Error, FileId, FileSystem, FilesToRename,
    Home, Name, NewNode, OpenAccess, OpenFile, PosixAcl, PosixAclKind, Quota, Renamed, Result,
    SetAttributes, Space, SystemId, Traits, XattrHow,
};

use super::identity::{SnapshotOrLive, WITHIN_FROM, Within, virtual_number};
use super::{SNAPSHOT_DIRECTORY, Snapshot, SnapshotFs};
use crate::PosixFs;
use crate::handle::Covered;

impl FileSystem for SnapshotFs {
    fn traits(&self) -> Traits {
        // A snapshot's directory has a second identity as an entry of `.snapshot`.
        Traits { unique_ids: false, ..self.live.traits() }
    }

    fn root(&self) -> FileId {
        self.live.root()
    }

    fn remote_system(&self) -> Option<SystemId> {
        self.live.remote_system()
    }

    /// A page of `.snapshot` opens each snapshot that it names.
    fn listing_system(&self, directory: &FileId) -> Option<SystemId> {
        let is_list = matches!(SnapshotOrLive::of(directory), SnapshotOrLive::List(_));
        self.remote_system().or_else(|| is_list.then(|| self.home(directory).system))
    }

    fn home(&self, id: &FileId) -> Home {
        match SnapshotOrLive::of(id) {
            SnapshotOrLive::Live => self.live.home(id),
            SnapshotOrLive::List(directory) => Home {
                system: self.live.home(&directory).system.of_covered_directory(),
                own_from: 0,
            },
            SnapshotOrLive::Within(within) => match self.files_of(within.number) {
                // Hard links of live files are the same files.
                Ok(files) => {
                    let home = files.home(&within.id);
                    Home { own_from: home.own_from + WITHIN_FROM, ..home }
                }
                Err(_) => Home { system: SystemId::UNKNOWN, own_from: 0 },
            },
        }
    }

    fn attributes(&self, id: &FileId, blocking: Blocking) -> Result<Attributes> {
        let of_list = |list: &FileId| self.list_attributes(id, list, blocking);
        self.at(id, blocking, of_list, |files, id| files.attributes(id, blocking))
    }

    fn mounted_on(&self, id: &FileId, attributes: &Attributes) -> u64 {
        match SnapshotOrLive::of(id) {
            SnapshotOrLive::Within(Within { is_entry: true, .. }) => virtual_number(id),
            _ => attributes.file_number,
        }
    }

    fn access(
        &self,
        caller: &Caller,
        id: &FileId,
        wanted: Access,
        blocking: Blocking,
    ) -> Result<Access> {
        let of_list = |list: &FileId| self.list_access(caller, list, wanted, blocking);
        self.at(id, blocking, of_list, |files, id| files.access(caller, id, wanted, blocking))
    }

    fn lookup(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        blocking: Blocking,
    ) -> Result<(FileId, Attributes)> {
        match SnapshotOrLive::of(directory) {
            SnapshotOrLive::Live if is_reserved(name) && Covered::of(directory).is_none() => {
                self.find_list(caller, directory, blocking)
            }
            SnapshotOrLive::Live => self.live.lookup(caller, directory, name, blocking),
            SnapshotOrLive::List(_) if blocking == Blocking::Forbidden => Err(Error::WouldBlock),
            SnapshotOrLive::List(live) => {
                self.require(caller, &live, Access::LOOKUP, blocking)?;
                self.enter(caller, &live, name.as_bytes())
            }
            SnapshotOrLive::Within(within) => {
                let snapshot = self.numbered(within.number, blocking)?;
                let (id, attributes) = snapshot.files.lookup(caller, &within.id, name, blocking)?;
                Ok((snapshot.outer(id)?, attributes))
            }
        }
    }

    fn parent(&self, caller: &Caller, directory: &FileId, blocking: Blocking) -> Result<FileId> {
        match SnapshotOrLive::of(directory) {
            SnapshotOrLive::Live => self.live.parent(caller, directory, blocking),
            SnapshotOrLive::List(live) => {
                self.require(caller, &live, Access::LOOKUP, blocking)?;
                Ok(live)
            }
            SnapshotOrLive::Within(within) => {
                let snapshot = self.numbered(within.number, blocking)?;
                if within.id == snapshot.files.root() {
                    return Ok(self.find_list(caller, &self.live.root(), blocking)?.0);
                }
                snapshot.outer(snapshot.files.parent(caller, &within.id, blocking)?)
            }
        }
    }

    fn read_link(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<u8>> {
        let of_list = |_: &FileId| Err(Error::Invalid);
        self.at(id, blocking, of_list, |files, id| files.read_link(caller, id, blocking))
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
        let within = match SnapshotOrLive::of(directory) {
            SnapshotOrLive::Live => {
                return self.list_live(caller, directory, cookie, with_files, blocking, each);
            }
            SnapshotOrLive::List(live) => {
                return self.list(caller, &live, cookie, with_files, blocking, each);
            }
            SnapshotOrLive::Within(within) => within,
        };
        let snapshot = self.numbered(within.number, blocking)?;
        snapshot.files.read_directory(
            caller,
            &within.id,
            cookie,
            with_files,
            blocking,
            &mut |entry| {
                let file = entry.file.map(|file| {
                    file.and_then(|(id, attributes)| Ok((snapshot.outer(id)?, attributes)))
                });
                each(DirectoryEntry { file, ..entry })
            },
        )
    }

    fn open(
        &self,
        caller: &Caller,
        id: &FileId,
        access: OpenAccess,
        access_override: AccessOverride,
        blocking: Blocking,
    ) -> Result<Arc<dyn OpenFile>> {
        let of_list = |_: &FileId| Err(Error::IsDirectory);
        self.at(id, blocking, of_list, |files, id| {
            files.open(caller, id, access, access_override, blocking)
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
        match SnapshotOrLive::of(directory) {
            SnapshotOrLive::Live if is_reserved(name) && how == CreateHow::Unchecked => {
                Err(Error::IsDirectory)
            }
            SnapshotOrLive::Live if is_reserved(name) => Err(Error::Exists),
            SnapshotOrLive::Live => {
                self.live.create(caller, directory, name, how, attributes, access)
            }
            SnapshotOrLive::List(_) | SnapshotOrLive::Within(_) => Err(Error::ReadOnly),
        }
    }

    fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        node: NewNode<'_>,
        attributes: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)> {
        check_live(&[directory])?;
        check_new_name(name)?;
        self.live.make(caller, directory, name, node, attributes)
    }

    fn link(
        &self,
        caller: &Caller,
        id: &FileId,
        directory: &FileId,
        name: Name<'_>,
    ) -> Result<DirectoryChange> {
        check_live(&[directory])?;
        check_live(&[id]).map_err(|_| Error::CrossesFileSystems)?;
        check_new_name(name)?;
        self.live.link(caller, id, directory, name)
    }

    fn remove(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        expected: Option<&FileId>,
    ) -> Result<(DirectoryChange, Option<FileId>)> {
        check_live(&[directory])?;
        check_old_name(name)?;
        self.live.remove(caller, directory, name, expected)
    }

    fn remove_incomplete(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        id: &FileId,
    ) -> Result<()> {
        check_live(&[directory, id])?;
        self.live.remove_incomplete(caller, directory, name, id)
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
        check_live(&[from, to])?;
        check_old_name(from_name)?;
        check_new_name(to_name)?;
        self.live.rename(caller, from, from_name, to, to_name, expected)
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        id: &FileId,
        open: Option<&dyn OpenFile>,
        set: &SetAttributes,
    ) -> Result<()> {
        check_live(&[id])?;
        self.live.set_attributes(caller, id, open, set)
    }

    fn set_quota(&self, limit: Option<u64>) -> Result<()> {
        self.live.set_quota(limit)
    }

    fn quota(&self) -> Option<Quota> {
        self.live.quota()
    }

    fn space(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Space> {
        let of_list = |list: &FileId| self.live.space(caller, list, blocking);
        self.at(id, blocking, of_list, |files, id| files.space(caller, id, blocking))
    }

    fn acl(
        &self,
        caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        blocking: Blocking,
    ) -> Result<PosixAcl> {
        let of_list = |_: &FileId| Ok(PosixAcl::default());
        self.at(id, blocking, of_list, |files, id| files.acl(caller, id, kind, blocking))
    }

    fn set_acl(
        &self,
        caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        acl: &PosixAcl,
    ) -> Result<()> {
        check_live(&[id])?;
        self.live.set_acl(caller, id, kind, acl)
    }

    fn label(&self, id: &FileId, blocking: Blocking) -> Result<Vec<u8>> {
        let of_list = |_: &FileId| Err(Error::NoXattr);
        self.at(id, blocking, of_list, |files, id| files.label(id, blocking))
    }

    fn set_label(&self, caller: &Caller, id: &FileId, label: &[u8]) -> Result<()> {
        check_live(&[id])?;
        self.live.set_label(caller, id, label)
    }

    fn xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        blocking: Blocking,
    ) -> Result<Vec<u8>> {
        let of_list = |_: &FileId| Err(Error::NoXattr);
        self.at(id, blocking, of_list, |files, id| files.xattr(caller, id, name, blocking))
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        check_live(&[id])?;
        self.live.set_xattr(caller, id, name, value, how)
    }

    fn remove_xattr(&self, caller: &Caller, id: &FileId, name: &[u8]) -> Result<()> {
        check_live(&[id])?;
        self.live.remove_xattr(caller, id, name)
    }

    fn xattrs(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<Vec<u8>>> {
        let of_list = |_: &FileId| Ok(Vec::new());
        self.at(id, blocking, of_list, |files, id| files.xattrs(caller, id, blocking))
    }

    /// Snapshots have nothing to write.
    fn sync_metadata(&self, ids: &[FileId], blocking: Blocking) -> Result<()> {
        let changed: Vec<FileId> = ids.iter().filter(|id| is_live(id)).copied().collect();
        self.live.sync_metadata(&changed, blocking)
    }

    fn syncs_together(&self, ids: &[FileId]) -> bool {
        self.live.syncs_together(ids)
    }

    fn path(&self, id: &FileId) -> Option<Vec<u8>> {
        match SnapshotOrLive::of(id) {
            SnapshotOrLive::Live => self.live.path(id),
            SnapshotOrLive::List(directory) => {
                Some(path_of(&[&self.live.path(&directory)?, SNAPSHOT_DIRECTORY]))
            }
            SnapshotOrLive::Within(within) => {
                let (name, files) = match self.numbered(within.number, Blocking::Forbidden) {
                    Ok(open) => (open.name.clone(), open.files.clone()),
                    Err(_) => self.in_use(within.number)?,
                };
                Some(path_of(&[SNAPSHOT_DIRECTORY, &name, &files.path(&within.id)?]))
            }
        }
    }

    fn has_removed_files(&self) -> bool {
        self.is_any_removed_in_use()
    }

    fn is_removed(&self, id: &FileId) -> bool {
        matches!(SnapshotOrLive::of(id), SnapshotOrLive::Within(within) if self.is_number_removed(within.number))
    }

    /// A snapshot does not change, but may be removed.
    fn watch_directory(&self, id: &FileId, changed: ChangeListener) -> Result<DirectoryWatch> {
        match SnapshotOrLive::of(id) {
            SnapshotOrLive::Live => self.live.watch_directory(id, changed),
            SnapshotOrLive::List(_) | SnapshotOrLive::Within(_) => Err(Error::NotSupported),
        }
    }

    fn maintain(&self) {
        self.live.maintain();
        self.close_unused();
        self.note_removed();
        let open: Vec<Arc<Snapshot>> = self.open.read().values().cloned().collect();
        open.iter().for_each(|snapshot| snapshot.files.maintain());
    }
}

impl SnapshotFs {
    /// Asks the file system of the file, of which a list of snapshots is no file.
    fn at<T>(
        &self,
        id: &FileId,
        blocking: Blocking,
        of_list: impl FnOnce(&FileId) -> Result<T>,
        of_file: impl FnOnce(&PosixFs, &FileId) -> Result<T>,
    ) -> Result<T> {
        match SnapshotOrLive::of(id) {
            SnapshotOrLive::Live => of_file(&self.live, id),
            SnapshotOrLive::List(list) => of_list(&list),
            SnapshotOrLive::Within(within) => {
                of_file(&self.numbered(within.number, blocking)?.files, &within.id)
            }
        }
    }
}

impl Snapshot {
    /// An identity of this snapshot's file system, as clients have it.
    fn outer(&self, id: FileId) -> Result<FileId> {
        Within { number: self.number, id, is_entry: false }.id().ok_or(Error::NotSupported)
    }
}

fn is_live(id: &FileId) -> bool {
    matches!(SnapshotOrLive::of(id), SnapshotOrLive::Live)
}

fn check_live(ids: &[&FileId]) -> Result<()> {
    if ids.iter().all(|id| is_live(id)) { Ok(()) } else { Err(Error::ReadOnly) }
}

fn is_reserved(name: Name<'_>) -> bool {
    name.as_bytes() == SNAPSHOT_DIRECTORY
}

fn check_new_name(name: Name<'_>) -> Result<()> {
    if is_reserved(name) { Err(Error::Exists) } else { Ok(()) }
}

fn check_old_name(name: Name<'_>) -> Result<()> {
    if is_reserved(name) { Err(Error::ReadOnly) } else { Ok(()) }
}

fn path_of(parts: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}
