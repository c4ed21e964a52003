//! The client of published trees: from a self-certifying name to verified bytes.
//!
//! Owns the choice of replicas, the caches, the memory of the newest revision seen, and pull.
//! Decides nothing about what is true: frames are checked by [`vouch_tree::frame`], fsinfos by
//! [`vouch_tree::verify`]. Knows nothing of FUSE.
//!
//! Every operation ends within [`ClientOptions::deadline`], with data or with an error that says
//! why; every queue, cache and reply has a limit.

mod certificates;
mod client;
mod clock;
mod connect;
mod content;
mod crawl;
mod diff;
mod directory;
mod disk_cache;
mod error;
mod file;
mod frame;
mod freshness;
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod local;
mod memory_cache;
mod pull;
mod read_ahead;
mod refresh;
mod replica;
mod revision;
mod seen;
mod tree;
mod verification;
mod walk;
mod whole;
mod witness;

pub use client::{CacheUsage, Client, ClientOptions, TreeOptions};
pub use clock::{Clock, SystemClock};
pub use connect::{Connector, Stream, TcpConnector};
pub use content::Seek;
pub use diff::{Change, Diff, Fields, What};
pub use directory::{Entry, Listing, Position};
pub use disk_cache::DiskCacheOptions;
pub use error::{Error, ErrorClass, Result};
pub use file::FileReader;
pub use frame::Frame;
pub use history::History;
pub use local::LocalConnector;
pub use pull::{PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport, pull, pull_watch};
pub use replica::{Counters, ReplicaState, ReplicaStatus};
pub use revision::{Order, Revision};
pub use tree::Tree;
pub use verification::{Verification, VerifyEvent};
pub use walk::Walked;
pub use whole::WholeFile;
pub use witness::{Disbelieved, Doubt, Witness};
