//! The client of published trees.

mod client; // Client: options, and state that all trees of a process share.
mod clock; // The wall clock as a parameter.
mod connector; // The network as a parameter: names to addresses, addresses to streams.
mod directory; // Directories: lookups and listings.
mod disk_cache; // Frames and whole files on disk, within a quota.
mod error; // Errors, their classes and errno values.
mod file; // File content: reads, holes, read-ahead, whole files.
mod frame; // Decoded frames.
mod freshness; // Which revision may be used now: refresh, rollback protection, key statements.
#[doc(hidden)]
pub mod fuzzing; // Entry points for fuzz targets.
mod local_connector; // A database of this machine as a replica.
mod memory_cache; // Decoded frames in memory.
mod path; // Paths to inodes, symbolic links included.
mod pull; // Copies the newest revision into a database.
mod replica; // Replicas: choice, connections, requests, replies.
mod replica_fault; // Observer of replicas that send wrong or old data.
mod revision; // Revisions: history, differences, full check.
mod traversal; // Visits every frame below some inodes, many at a time.
mod tree; // Tree: one open tree, and frames from memory, disk or network.

pub use client::{CacheUsage, Client, ClientOptions, TreeOptions};
pub use clock::{Clock, SystemClock};
pub use connector::{Connector, Stream, TcpConnector};
pub use directory::{Entry, Listing, Position};
pub use disk_cache::DiskCacheOptions;
pub use error::{Error, ErrorClass, Result};
pub use file::{FileReader, Seek, WholeFile};
pub use frame::Frame;
pub use local_connector::LocalConnector;
pub use path::ResolvedPath;
pub use pull::{PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport, pull, pull_watch};
pub use replica::{Counters, ReplicaState, ReplicaStatus};
pub use replica_fault::{FaultKind, FaultObserver, ReplicaFault};
pub use revision::{Change, ChangeKind, ChangedFields, Diff, History, Revision, RevisionOrder, Verification, VerifyEvent};
pub use tree::Tree;
