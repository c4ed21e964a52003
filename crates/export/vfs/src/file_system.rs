use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::{
    Access, Attributes, Blocking, Caller, FileId, Home, Name, OpenAccess, OpenFile, PosixAcl,
    PosixAclKind, Result, SetAttributes, SystemId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    pub read_only: bool,
    /// Bytes.
    pub file_size_max: u64,
    pub links_max: u32,
    pub name_len_max: u32,
    pub xattrs: bool,
    pub acls: bool,
    /// Of mandatory access control.
    pub labels: bool,
    /// Clients are asked not to cache the data of files.
    pub uncacheable: bool,
    /// Of [`OpenFile::clone_range`], bytes; 0 without support.
    pub clone_block_len: u32,
    /// Holes are found, and take no space.
    pub sparse: bool,
    /// The change attribute grows even if the clock is set back.
    pub change_grows: bool,
    /// If false, identities may become stale after a rename outside of the server, or shortly
    /// before a crash.
    pub persistent_ids: bool,
    /// Different identities mean different files.
    pub unique_ids: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_available: u64,
    pub files_total: u64,
    pub files_free: u64,
    pub files_available: u64,
    /// Of the caller: used bytes, soft limit and hard limit, if any.
    pub quota: Option<(u64, u64, u64)>,
}

/// A limit for all files of a file system together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes, as disks count them.
    pub used: u64,
    pub limit: u64,
    pub enforced_by: QuotaEnforcement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaEnforcement {
    /// A project quota of the file system, which also counts what local programs write.
    FileSystem,
    /// The server counts what its clients write.
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryChange {
    pub before: u64,
    pub after: u64,
    pub atomic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Opens an existing file; of the attributes only a size of 0 is applied.
    Unchecked,
    /// [`Error::Exists`](crate::Error::Exists) for an existing file.
    Guarded,
    /// A file with the same verifier counts as created by an earlier attempt. The verifier is
    /// stored in times or an xattr; it survives a restart and ends with the next change of times.
    Exclusive([u8; 8]),
}

/// At opening, as NFS servers grant them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessOverride {
    None,
    /// Execute permission allows reading, because the client runs the program. Not together with
    /// writing.
    Execute,
    /// Like `Execute`; and an owner keeps access after a chmod.
    Owner,
    Proven,
}

pub struct Created {
    pub id: FileId,
    pub attributes: Attributes,
    pub open: Arc<dyn OpenFile>,
    pub new: bool,
    pub directory: DirectoryChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    Directory,
    Symlink(&'a [u8]),
    BlockDevice(u32, u32),
    CharDevice(u32, u32),
    Fifo,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub from: DirectoryChange,
    pub to: DirectoryChange,
    pub replaced: Option<FileId>,
}

/// The files that a caller found under the two names of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilesToRename {
    pub moved: FileId,
    pub replaced: Option<FileId>,
}

pub struct DirectoryEntry<'a> {
    pub name: &'a [u8],
    /// Position after this entry, at least 3, valid while the entry stays.
    pub cookie: u64,
    pub file_number: u64,
    pub file: Option<Result<(FileId, Attributes)>>,
}

pub type ChangeListener = Arc<dyn Fn() + Send + Sync>;

/// Ends when it is dropped, without blocking.
pub type DirectoryWatch = Box<dyn Any + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    Either,
    Create,
    Replace,
}

/// Every method uses only the rights of `caller`, accepts only its own `id`s (others: `Stale` or
/// `BadId`), and never leaves its root: not by `..`, a symbolic link, or a race with a rename.
pub trait FileSystem: Send + Sync {
    fn traits(&self) -> Traits;

    fn root(&self) -> FileId;

    /// Set if a call may wait for other machines or processes without a limit. Calls to it then run
    /// only on threads of their own, which no other file system needs.
    fn remote_system(&self) -> Option<SystemId> {
        None
    }

    /// As [`FileSystem::remote_system`], for a listing of the directory. A local listing that may
    /// cost as much as thousands of other calls names a system of its own.
    fn listing_system(&self, _directory: &FileId) -> Option<SystemId> {
        self.remote_system()
    }

    /// The same through every export. Reads no disk for known files; each call uses it.
    fn home(&self, id: &FileId) -> Home;

    fn attributes(&self, id: &FileId, blocking: Blocking) -> Result<Attributes>;

    /// Of the entry through which `id` is reached: differs from the file's number only at the root
    /// of another file system (RFC 8881, section 5.8.2.19).
    fn mounted_on(&self, _id: &FileId, attributes: &Attributes) -> u64 {
        attributes.file_number
    }

    fn access(
        &self,
        caller: &Caller,
        id: &FileId,
        wanted: Access,
        blocking: Blocking,
    ) -> Result<Access>;

    /// Follows no symbolic links; crosses mount points only if they are part of the export.
    fn lookup(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        blocking: Blocking,
    ) -> Result<(FileId, Attributes)>;

    fn parent(&self, caller: &Caller, directory: &FileId, blocking: Blocking) -> Result<FileId>;

    fn read_link(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<u8>>;

    /// Lists entries after `cookie` (0: from the start; without `.` and `..`) until `each` breaks.
    /// The entry at which it breaks counts as not listed. True at the end of the directory.
    fn read_directory(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        blocking: Blocking,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool>;

    /// `IsDirectory`, `IsSymlink` or `WrongType` for all but regular files.
    fn open(
        &self,
        caller: &Caller,
        id: &FileId,
        access: OpenAccess,
        access_override: AccessOverride,
        blocking: Blocking,
    ) -> Result<Arc<dyn OpenFile>>;

    /// A new regular file grants the requested access whatever its mode.
    fn create(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        how: CreateHow,
        attributes: &SetAttributes,
        access: OpenAccess,
    ) -> Result<Created>;

    fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        node: NewNode<'_>,
        attributes: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)>;

    fn link(
        &self,
        caller: &Caller,
        id: &FileId,
        directory: &FileId,
        name: Name<'_>,
    ) -> Result<DirectoryChange>;

    /// With `expected`, no other file. Errors: NameChanged if another has the name.
    fn remove(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        expected: Option<&FileId>,
    ) -> Result<(DirectoryChange, Option<FileId>)>;

    /// Removes the file only if the name is still its own. Leaves other files and non-empty
    /// directories, without an error.
    fn remove_incomplete(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        id: &FileId,
    ) -> Result<()>;

    /// With `expected`, no other files. Errors: NameChanged if others have the names.
    fn rename(
        &self,
        caller: &Caller,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
        expected: Option<&FilesToRename>,
    ) -> Result<Renamed>;

    /// All or nothing if possible; otherwise in the order size, owner, mode, times, up to the first
    /// failure.
    fn set_attributes(
        &self,
        caller: &Caller,
        id: &FileId,
        open: Option<&dyn OpenFile>,
        set: &SetAttributes,
    ) -> Result<()>;

    fn space(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Space>;

    /// Limits the space of all files together, in bytes. Files that are there already may count only
    /// after a while. [`Error::NotSupported`](crate::Error::NotSupported) for file systems without
    /// limits.
    fn set_quota(&self, limit: Option<u64>) -> Result<()> {
        if limit.is_none() { Ok(()) } else { Err(crate::Error::NotSupported) }
    }

    /// The limit in force. Blocks on no disk.
    fn quota(&self) -> Option<Quota> {
        None
    }

    fn acl(
        &self,
        caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        blocking: Blocking,
    ) -> Result<PosixAcl>;

    fn set_acl(
        &self,
        caller: &Caller,
        id: &FileId,
        kind: PosixAclKind,
        acl: &PosixAcl,
    ) -> Result<()>;

    /// The SELinux label, without a final NUL. [`Error::NoXattr`](crate::Error::NoXattr) without one.
    fn label(&self, _id: &FileId, _blocking: Blocking) -> Result<Vec<u8>> {
        Err(crate::Error::NotSupported)
    }

    /// Only the file's owner and root may set it.
    fn set_label(&self, _caller: &Caller, _id: &FileId, _label: &[u8]) -> Result<()> {
        Err(crate::Error::NotSupported)
    }

    /// `name` without the `user.` prefix.
    fn xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        blocking: Blocking,
    ) -> Result<Vec<u8>>;

    fn set_xattr(
        &self,
        caller: &Caller,
        id: &FileId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()>;

    fn remove_xattr(&self, caller: &Caller, id: &FileId, name: &[u8]) -> Result<()>;

    /// `user.` attributes, without the prefix, sorted.
    fn xattrs(&self, caller: &Caller, id: &FileId, blocking: Blocking) -> Result<Vec<Vec<u8>>>;

    /// Makes names in directories, attributes, ACLs, xattrs and new files durable (pass a new file
    /// and its directory). Several files cost little more than one.
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) at [`Blocking::Forbidden`] unless nothing
    /// has to be written. Skips removed files.
    fn sync_metadata(&self, ids: &[FileId], blocking: Blocking) -> Result<()>;

    /// One [`sync_metadata`](Self::sync_metadata) of many files takes as long as of one.
    fn syncs_together(&self, _ids: &[FileId]) -> bool {
        false
    }

    /// Below the root, for messages and records, if cheap; never for decisions.
    fn path(&self, id: &FileId) -> Option<Vec<u8>>;

    /// Clients may have files of a removed part open, such as a snapshot. Never blocks.
    fn has_removed_files(&self) -> bool {
        false
    }

    /// The file was in a removed part, so the state of clients for it ends. Never blocks.
    fn is_removed(&self, _id: &FileId) -> bool {
        false
    }

    /// Calls `changed` soon after others than callers of this file system have changed the names or
    /// attributes of the directory, until the watch is dropped. `changed` must not block.
    /// [`Error::NotSupported`](crate::Error::NotSupported) if such changes are not seen.
    fn watch_directory(&self, _id: &FileId, _changed: ChangeListener) -> Result<DirectoryWatch> {
        Err(crate::Error::NotSupported)
    }

    /// Housekeeping in bounded steps, every few seconds.
    fn maintain(&self) {}
}
