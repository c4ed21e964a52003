//! A local Linux directory as an exportable file system, used with each caller's own rights.
//!
//! The kernel checks all rights, for a thread with the caller's identity (`identity.rs`). Memory
//! holds descriptors of recently used files (`node.rs`) and open listings (`listing.rs`). The disk
//! holds the names of files ([`IdStore`]) only if the kernel cannot open files by handle.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod access;
mod acl;
mod attributes;
mod c_name;
mod change_counter;
mod covered_directory;
mod directory_lock;
mod directory_stream;
mod errno;
mod export;
mod ffi;
mod file_system;
mod handle;
mod id_log;
mod id_store;
mod identity;
mod incomplete_file;
mod io_mode;
mod journal;
mod listing;
mod mount;
mod mount_crossing;
mod mount_table;
mod names;
mod node;
mod open;
mod probe;
mod quota;
mod read_order;
mod resolve;
mod set_attributes;
mod snapshots;
mod space;
mod subtree;
mod watch;
mod write_throttle;
mod xattr;

pub use export::{ExportError, Options, PosixFs};
pub use id_store::{IdStore, IdStoreError, open_database_file};
pub use identity::{can_serve_others, leave_callers};
pub use io_mode::IoMode;
pub use node::FileCache;
pub use snapshots::{SnapshotFs, SnapshotOptions, SnapshotPattern};
