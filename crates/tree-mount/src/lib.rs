//! Published trees as a FUSE file system: one tree, or the namespace of all trees.
//!
//! Owns the table of files that the kernel knows, their numbers, what the kernel may cache and for
//! how long, and the way of open files from one revision to the next. What may be believed, where
//! it comes from and what is cached on this side is [`vouch_tree_client`]'s; nothing is read here
//! that was not verified there.
//!
//! What is deliberately not done:
//! - *Passthrough by default.* It needs an answer to each open, where else the kernel opens, reads
//!   and closes a cached file without asking anybody (with the disk cache that it needs, 1,000
//!   small files, cold, took a third more time; the two are not told apart yet), and a whole copy
//!   in the disk cache. What it brings is the larger folios of a local file system's page cache:
//!   see the warm rows in `benches/runs`.
//! - *Extended attributes that come later.* A single tree without any is mounted without (see
//!   [`XattrMode::Auto`]).

mod attr;
mod complaint;
mod config;
mod cookie;
mod core;
mod error;
mod face;
mod kernel;
mod listing;
mod namespace;
mod negative;
mod number;
mod observer;
mod opens;
mod point;
mod session;
mod sweep;
mod table;
mod volume;

pub use config::{MountConfig, MountOptions, Passthrough, XattrMode};
pub use error::MountError;
pub use observer::{Asker, Failure, Kept, News, Observer, Operation, Seen};
pub use point::{clear_dead_mount, unmount_point};
pub use session::{MountStatus, Mounted, TreeStatus, mount_namespace, mount_tree};
