//! A pull-through cache of one published tree, for a replica at a site.
//!
//! The cache has the layout of its origin's database: the same manifest and index, and packs of the
//! same length in which only the frames that were asked for are filled in. So it serves the tree
//! protocol by handle and HTTP by range, from the same files.
//!
//! - A frame comes from any replica, and is verified by its hash before it is written.
//! - Requests for a frame that is on its way wait for the same fetch.
//! - A frame that an earlier process has written is verified when it is first used.
//! - Packs that were not used for the longest time are removed when the quota is exceeded.
//!
//! The index is not signed: with a wrong index the cache fails to find frames, but serves no wrong
//! one.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod cache; // The cache: packs, look-ups, eviction.
mod fetch; // Fetches of missing frames, each once.
mod follow; // Follows the origin's revisions: manifest and index.
mod pack; // One pack: which frames are present.
mod table; // The places of all frames in a pack.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cache::{CacheCounts, Cover, TreeCache};
pub use pack::Wanted;
use vouch_tree::TreeName;
use vouch_tree_client::{HttpOptions, TreeOptions};

/// Options of a cache.
pub struct CacheOptions {
    pub name: TreeName,
    /// Directory of the cache. One process at a time.
    pub dir: PathBuf,
    /// Most bytes on disk: manifest, index and packs.
    pub quota: u64,
    /// Replicas of the tree.
    pub tree: TreeOptions,
    /// Interval at which the origin is asked for a new revision.
    pub refresh: Duration,
    pub http: HttpOptions,
}

/// Errors of a cache.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}: another process uses this cache")]
    Busy(PathBuf),
    #[error(transparent)]
    Client(#[from] vouch_tree_client::Error),
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
    #[error("the quota of {quota} bytes has no room for packs: manifest and index have {index} bytes; set --quota to {needed} or more")]
    Quota { quota: u64, index: u64, needed: u64 },
    #[error("{origin}: {what}")]
    Origin { origin: String, what: String },
}

pub type Result<T> = std::result::Result<T, Error>;

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { path: path.to_owned(), source }
}
