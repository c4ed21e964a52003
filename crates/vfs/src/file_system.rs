//! A file system: names, attributes and what can be done with them.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::{
    Access, Attributes, Caller, FileId, Home, Name, OpenAccess, OpenFile, Patience, PosixAcl, PosixAclKind, Result, SetAttributes,
};

/// What a file system can do; fixed while it is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Largest file, bytes.
    pub file_size_max: u64,
    /// Most links of a file.
    pub links_max: u32,
    /// Longest name, bytes.
    pub name_len_max: u32,
    /// Has extended attributes of the `user.` space.
    pub xattrs: bool,
    /// Has POSIX ACLs.
    pub acls: bool,
    /// Has [`OpenFile::clone_range`]; block size that offsets must be multiples of, bytes, or 0.
    pub clone_block_len: u32,
    /// Records holes.
    pub sparse: bool,
    /// The change attribute only grows, also where the clock is set back; if not, it is made of
    /// times.
    pub change_grows: bool,
    /// Files keep their identity for as long as they exist, across rename and restart. Else it may
    /// become stale: when the file is renamed behind the file system's back, or soon before a
    /// crash.
    pub persistent_ids: bool,
}

/// Room on a file system, bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub bytes_total: u64,
    /// Free bytes.
    pub bytes_free: u64,
    /// Free for the caller.
    pub bytes_available: u64,
    /// All files.
    pub files_total: u64,
    /// Free files.
    pub files_free: u64,
    /// Free for the caller.
    pub files_available: u64,
    /// Quota of the caller: used, soft limit and hard limit, bytes, where the file system has
    /// quotas.
    pub quota: Option<(u64, u64, u64)>,
}

/// What happened to a directory: its change attribute before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryChange {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
    /// Whether nothing else can have come between.
    pub atomic: bool,
}

/// How a regular file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// If there is one, it is opened; of the attributes only a size of 0 is set then.
    Unchecked,
    /// If there is one, it fails with [`Error::Exists`](crate::Error::Exists).
    Guarded,
    /// As `Guarded`, but a file that was made with the same verifier is this one, made before: a
    /// retry. Where the verifier is kept (in times or in an xattr) is the file system's matter;
    /// it survives a restart, and goes with the first change of the times.
    Exclusive([u8; 8]),
}

/// What lets a caller open a file beside its mode and ACL, as NFS servers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leniency {
    /// Nothing.
    None,
    /// Who may execute a file may read it, as a program is run by the caller's machine; not where
    /// it is opened for writing too.
    Execute,
    /// As `Execute`; and an owner, who was let in once, may go on reading and writing whatever the
    /// mode says now.
    Owner,
    /// Everything: the caller has proven all that is asked for, each part when it was first asked
    /// for.
    Proven,
}

/// A file that was created, or found by a creation.
pub struct Created {
    /// The file.
    pub id: FileId,
    /// Its attributes.
    pub attributes: Attributes,
    /// Open as asked.
    pub open: Arc<dyn OpenFile>,
    /// Whether this call made it.
    pub new: bool,
    /// What happened to the directory.
    pub directory: DirectoryChange,
}

/// Something to make that is not a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// Directory.
    Directory,
    /// Symbolic link with this target.
    Symlink(&'a [u8]),
    /// Block device, major and minor number.
    BlockDevice(u32, u32),
    /// Character device, major and minor number.
    CharDevice(u32, u32),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// What a rename did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The directory that it left.
    pub from: DirectoryChange,
    /// The directory that it is in.
    pub to: DirectoryChange,
    /// The file that had the new name before, if it lost its last name by it.
    pub replaced: Option<FileId>,
}

/// An entry of a directory.
pub struct DirectoryEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// What a listing goes on after this entry with. Stays right for entries that stay, whatever
    /// else changes. At least 3.
    pub cookie: u64,
    /// Inode number.
    pub file_number: u64,
    /// Identity and attributes, where they were asked for; an error if they could not be had.
    pub file: Option<Result<(FileId, Attributes)>>,
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    /// Made or replaced.
    Either,
    /// Fails if there is one.
    Create,
    /// Fails if there is none.
    Replace,
}

/// A file system. Every method acts with the rights of `caller` and no others, on `id`s that it
/// gave out (others: `Stale` or `BadId`), and never leaves its root: neither by `..`, nor through a
/// symbolic link, nor by a race with a rename.
pub trait FileSystem: Send + Sync {
    /// What it can do.
    fn traits(&self) -> Traits;

    /// The root directory.
    fn root(&self) -> FileId;

    /// Where a file lies, so that it is known for the same one by whatever export it is reached.
    /// Reads no disk for files that were met before; asked for each call.
    fn home(&self, id: &FileId) -> Home;

    /// Attributes of a file. Needs no rights on the file itself.
    fn attributes(&self, id: &FileId, patience: Patience) -> Result<Attributes>;

    /// Which of `wanted` the caller has.
    fn access(&self, caller: &Caller, id: &FileId, wanted: Access, patience: Patience) -> Result<Access>;

    /// The file of this name, and its attributes. Does not follow symbolic links; crosses mount
    /// points below the root only where they are part of the export.
    fn lookup(&self, caller: &Caller, directory: &FileId, name: Name<'_>, patience: Patience) -> Result<(FileId, Attributes)>;

    /// The directory above; `NotFound` at the root.
    fn parent(&self, caller: &Caller, directory: &FileId, patience: Patience) -> Result<FileId>;

    /// Target of a symbolic link.
    fn read_link(&self, caller: &Caller, id: &FileId, patience: Patience) -> Result<Vec<u8>>;

    /// Lists entries after `cookie` (0: from the start; `.` and `..` never) until `each` breaks.
    /// The one at which it breaks counts as not listed. Returns whether the end was reached.
    /// `with_files` asks for [`DirectoryEntry::file`].
    fn read_directory(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        patience: Patience,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool>;

    /// Opens a regular file. `IsDirectory`, `IsSymlink` or `WrongType` for others.
    fn open(&self, caller: &Caller, id: &FileId, access: OpenAccess, leniency: Leniency, patience: Patience) -> Result<Arc<dyn OpenFile>>;

    /// Creates a regular file and opens it. The access asked for is granted for a new file whatever
    /// its mode.
    fn create(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        how: CreateHow,
        attributes: &SetAttributes,
        access: OpenAccess,
    ) -> Result<Created>;

    /// Makes a directory, a symbolic link or a special file.
    fn make(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: Name<'_>,
        node: NewNode<'_>,
        attributes: &SetAttributes,
    ) -> Result<(FileId, Attributes, DirectoryChange)>;

    /// Gives a file another name.
    fn link(&self, caller: &Caller, id: &FileId, directory: &FileId, name: Name<'_>) -> Result<DirectoryChange>;

    /// Removes a name: of a file, or of an empty directory. With the change, the file if that was
    /// its last name.
    fn remove(&self, caller: &Caller, directory: &FileId, name: Name<'_>) -> Result<(DirectoryChange, Option<FileId>)>;

    /// Takes back what the caller has just made and could not finish: removes the name if it is
    /// still this file's. What has come in its place stays, and so does a directory that
    /// something was put into; neither is an error.
    fn unmake(&self, caller: &Caller, directory: &FileId, name: Name<'_>, id: &FileId) -> Result<()>;

    /// Renames, replacing what has the new name if that is of the same kind.
    fn rename(&self, caller: &Caller, from: &FileId, from_name: Name<'_>, to: &FileId, to_name: Name<'_>) -> Result<Renamed>;

    /// Sets attributes; `open`, if given, is this file open for writing, and suffices for a new
    /// size. All or nothing where the system can; else in the order size, owner, mode, times,
    /// stopping at the first failure.
    fn set_attributes(&self, caller: &Caller, id: &FileId, open: Option<&dyn OpenFile>, set: &SetAttributes) -> Result<()>;

    /// Room left.
    fn space(&self, caller: &Caller, id: &FileId, patience: Patience) -> Result<Space>;

    /// An ACL; empty if there is none beyond the mode.
    fn acl(&self, caller: &Caller, id: &FileId, kind: PosixAclKind, patience: Patience) -> Result<PosixAcl>;

    /// Sets an ACL; an empty one removes it.
    fn set_acl(&self, caller: &Caller, id: &FileId, kind: PosixAclKind, acl: &PosixAcl) -> Result<()>;

    /// Value of an extended attribute; `name` without the `user.` prefix.
    fn xattr(&self, caller: &Caller, id: &FileId, name: &[u8], patience: Patience) -> Result<Vec<u8>>;

    /// Sets an extended attribute.
    fn set_xattr(&self, caller: &Caller, id: &FileId, name: &[u8], value: &[u8], how: XattrHow) -> Result<()>;

    /// Removes an extended attribute.
    fn remove_xattr(&self, caller: &Caller, id: &FileId, name: &[u8]) -> Result<()>;

    /// Names of the extended attributes of the `user.` space, without the prefix, sorted.
    fn xattrs(&self, caller: &Caller, id: &FileId, patience: Patience) -> Result<Vec<Vec<u8>>>;

    /// Makes durable what was changed of these files: the names in a directory, the attributes,
    /// ACLs and xattrs of any file, a new file's existence (name it and its directory). Not
    /// data: that is [`OpenFile::commit`]'s. One call for several files costs little more than for
    /// one, so call it once, after the last change.
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) at [`Patience::None`] unless nothing has to
    /// be waited for. Files that are gone are left out.
    fn sync_metadata(&self, ids: &[FileId], patience: Patience) -> Result<()>;

    /// Whether [`sync_metadata`](Self::sync_metadata) of these files and of many such waits no
    /// longer than of one, so that callers that wait had better be gathered.
    fn syncs_together(&self, _ids: &[FileId]) -> bool {
        false
    }

    /// Path of the file below the root, for messages and records, where it can be told cheaply;
    /// never for decisions.
    fn path(&self, id: &FileId) -> Option<Vec<u8>>;

    /// A bounded piece of housekeeping; the driver calls it about once a second.
    fn maintain(&self) {}
}
