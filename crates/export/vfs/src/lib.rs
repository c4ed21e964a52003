//! The traits [`FileSystem`] and [`OpenFile`], their values, and a [file system in memory](memory)
//! for tests. No NFS or RPC code, no clock.
//!
//! Calls are synchronous, because a local file system answers mostly from memory. A call with
//! [`Blocking::Forbidden`] returns [`Error::WouldBlock`] if it must wait for a disk or a network.
//! The caller repeats it with [`Blocking::Allowed`] on a thread that may sleep.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod acl;
mod attributes;
mod caller;
pub mod conformance;
mod error;
mod file_id;
mod file_system;
pub mod memory;
mod mutant;
mod name;
mod open_file;
pub mod rights;

pub use acl::{PosixAcl, PosixAclEntry, PosixAclKind, PosixAclTag};
pub use attributes::{Attributes, FileType, SetAttributes, SetTime, Time};
pub use caller::{Access, Caller};
pub use error::{Error, Result};
pub use file_id::{FILE_ID_LEN_MAX, FileId, Home, SystemId};
pub use file_system::{
    AccessOverride, ChangeListener, CreateHow, Created, DirectoryChange, DirectoryEntry,
    DirectoryWatch, FileSystem, FilesToRename, NewNode, Quota, QuotaEnforcement, Renamed, Space,
    Traits, XattrHow,
};
pub use mutant::mutant;
pub use name::{NAME_LEN_MAX, Name};
pub use open_file::{
    Advice, Content, FileSpan, OpenAccess, OpenFile, ReadInto, SeekTarget, Stability, Written,
};

/// Permission to wait for a disk or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// Answer from memory, or return [`Error::WouldBlock`] if waiting is foreseeable.
    Forbidden,
    Allowed,
}
