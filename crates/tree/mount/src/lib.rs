//! Mounts published trees with FUSE: one tree, or the namespace of all trees.
//!
//! [`mount_tree`] mounts an open [`Tree`](vouch_tree_client::Tree); [`mount_namespace`] mounts a
//! directory in which `@HOST[:PORT],HOSTID` appears when it is looked up. A new revision appears
//! without a remount, also in open files. An expired or revoked tree returns errors.
//!
//! This crate has the table of files that the kernel knows, their inode numbers, and the kernel's
//! caching. All data comes verified from [`vouch_tree_client`].
//!
//! Passthrough is off by default: the kernel then sends a request for each open, which costs more
//! than it gains for small files (docs/results-trees.md).
//!
//! # Example
//!
//! ```no_run
//! use std::path::PathBuf;
//!
//! use vouch_tree_client::{Client, ClientOptions, TreeOptions};
//! use vouch_tree_mount::{MountConfig, MountOptions, mount_tree};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let name = std::env::args().nth(1).ok_or("a name is missing")?.parse()?;
//! let client = Client::new(ClientOptions::default())?;
//! let tree = client.open(&name, &TreeOptions::default()).await?;
//! let config = MountConfig { point: PathBuf::from("/mnt"), options: MountOptions::default() };
//! let mounted = mount_tree(config, tree).await?;
//! mounted.serve_until(async { drop(tokio::signal::ctrl_c().await) }).await?;
//! # Ok(())
//! # }
//! ```

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod attributes;
mod config;
mod cookie;
mod error;
mod error_log;
mod file_status;
mod filesystem; // The FUSE interface: decodes requests, sends replies.
mod fuse_device; // Sessions on the device of another process, backing files by number.
mod gate;
mod holders;
mod journal;
mod kernel_notices; // Invalidation of the kernel's caches.
mod late_reads; // Reads that the kernel asks for twice.
mod listing_reply;
mod mount_point; // mountinfo, dead mounts, unmounting, read-ahead of the device.
mod namespace;
mod negative_names; // Missing names that the kernel remembers.
mod node_table; // Files that the kernel knows, by node and path.
mod observe;
mod observer;
mod open; // open(2), release, and backing files under a new revision.
mod open_files;
mod passthrough_balance; // Gain and cost of passthrough.
mod readdir; // Directory listings.
mod request; // One request of the kernel, and open files for the observer.
mod requests;
mod revision_update; // Takes known files to a new revision.
mod session; // Mounting, serving, unmounting.
mod state;
mod status;
mod take_over; // Continues the mount of another process, and lets another one continue.
mod volume; // One mounted tree: revision shown, freshness, readers.

pub use config::{MountConfig, MountOptions, Passthrough, XattrMode, device_name};
pub use error::MountError;
pub use holders::{Holder, namespaces_with, users_of};
pub use journal::image::{JournalError, MountImage};
pub use mount_point::{
    Mount, clear_dead_mount, existing_directory, is_mounted, mount_device, mount_on, mount_points,
    mount_source, mounts, request_timeout, set_read_ahead, unmount_point,
};
pub use namespace::NamespaceTrees;
pub use observer::{Caller, Failure, Observation, Observer, Operation, Recorded, TreeEvent};
pub use session::{Mounted, mount_error, mount_namespace, mount_tree};
pub use status::{
    DiskCacheStatus, MountMonitor, MountStatus, ReplicaReport, RequestCount, TreeStatus,
    WitnessReport,
};
pub use take_over::{
    MountHandle, Predecessor, TakeOver, create_journal, take_over_namespace, take_over_tree,
};
