//! A local directory of Linux as a file system that can be exported, used with each caller's own
//! rights.
//!
//! Owns everything that turns [`vouch_vfs::FileSystem`] into system calls, and the few that need
//! `unsafe` (`ffi.rs`). Decides nothing about rights: the kernel does, for a thread that has taken
//! on the caller's identity (`identity.rs`). Knows nothing of NFS.
//!
//! What is kept in memory: descriptors of files lately used (`node.rs`), streams of directories
//! that are being listed (`listing.rs`). What is kept on disk: nothing where the kernel opens files
//! by handle; else the names of files that were given out ([`IdStore`]).

mod access;
mod acl;
mod attributes;
mod c_name;
mod changes;
mod covered;
mod crossing;
mod errno;
mod export;
mod ffi;
mod file_system;
mod handle;
mod id_log;
mod id_store;
mod identity;
mod journal;
mod listing;
mod mount;
mod names;
mod node;
mod open;
mod pressure;
mod probe;
mod resolve;
mod setting;
mod space;
mod unmake;
mod xattr;

pub use export::{ExportError, Options, PosixFs};
pub use id_store::{IdStore, IdStoreError};
pub use identity::{can_serve_others, leave_callers};
pub use node::FileCache;
