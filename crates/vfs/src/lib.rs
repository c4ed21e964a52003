//! The interface of a file system that can be exported: what a server may ask, and in which words
//! it is answered.
//!
//! Owns the traits [`FileSystem`] and [`OpenFile`], the values that cross them, and for tests a
//! [file system in memory](memory). Knows nothing of NFS or RPC, reads no clock.
//!
//! Calls are synchronous: a local file system answers from memory nearly always, and then a future,
//! a task or a thread hand-over would cost more than the answer. What would have to wait says so: a
//! call made with [`Patience::None`] returns [`Error::WouldBlock`] where it can tell in advance
//! that a disk or a network must be waited for, and the caller asks again, with [`Patience::Any`],
//! from a thread that may sleep.

mod acl;
mod attributes;
mod caller;
pub mod conformance;
mod error;
mod file_id;
mod file_system;
pub mod memory;
mod name;
mod open_file;

pub use acl::{PosixAcl, PosixAclEntry, PosixAclKind, PosixAclTag};
pub use attributes::{Attributes, FileType, SetAttributes, SetTime, Time};
pub use caller::{Access, Caller};
pub use error::{Error, Result};
pub use file_id::{FILE_ID_LEN_MAX, FileId, Home, SystemId};
pub use file_system::{
    CreateHow, Created, DirectoryChange, DirectoryEntry, FileSystem, Leniency, NewNode, Renamed, Space, Traits, XattrHow,
};
pub use name::{NAME_LEN_MAX, Name};
pub use open_file::{Advice, Content, FileSpan, OpenAccess, OpenFile, ReadInto, SeekTarget, Stability, Written};

/// Whether a call may wait for a disk or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Answer from memory, or return [`Error::WouldBlock`] if waiting is foreseeable.
    None,
    /// Wait as long as needed.
    Any,
}
