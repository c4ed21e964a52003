//! Mounts an NFSv4 export with FUSE, without root and without the kernel's NFS client.
//!
//! [`mount`] connects to the server and mounts; [`Mounted::serve_until`] serves the kernel. Minor
//! version 2 is used, or 1 if the server lacks it.
//!
//! Written data waits in a bounded buffer until the server has it; fsync(2) and close(2) wait until
//! it is durable. Attributes and pages follow close-to-open consistency. Opens and locks survive a
//! restart of the server. This crate keeps no data on disk, and no state for another process: an end
//! of the process ends the mount.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod attributes;
mod caller;
mod connect; // The session, and the root of the mount.
mod dispatch;
mod error;
mod fuse;
mod inode;
mod locks;
mod mount;
mod mounted;
mod op;
mod open_file;
mod options;
mod report;
mod reserved_port;
mod session;
mod write_buffer;

pub use mounted::{Mounted, mount};
pub use options::{CacheTimes, MountOptions, Security};
pub use report::{NfsMountReport, NfsMountStatus};
pub use vouch_nfs4_client::{ClientFiles, TlsClient};
pub use vouch_rpcsec_gss::Service;
