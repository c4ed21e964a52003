//! A pull-through cache of one published tree, for a replica at a site.
//!
//! The cache has the manifest and index of its origin, and packs of equal length with only the
//! requested frames. So the same files serve the tree protocol by handle and HTTP by range.
//!
//! - Any replica delivers a frame; its hash is verified before it is written.
//! - Concurrent requests for a frame share one fetch.
//! - Frames of an earlier process are verified at first use.
//! - Over the quota, the least recently used packs are removed.
//!
//! The index is not signed: with a wrong one the cache lacks frames, but serves no wrong one.

mod cache;
mod fetch;
mod follow;
mod log;
mod pack;
mod table;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use cache::{CacheCounts, CachedRange, TreeCache};
pub use pack::MissingFrames;
use vouch_tree::TreeName;
use vouch_tree_client::{ErrorClass, HttpOptions, TreeOptions};

/// Options of a cache: its tree, its origins and its quota.
pub struct CacheOptions {
    /// The tree.
    pub name: TreeName,
    /// One process at a time.
    pub dir: PathBuf,
    /// Bytes of disk at most.
    pub quota: u64,
    /// How origins are asked.
    pub tree: TreeOptions,
    /// Time between two looks for a new revision.
    pub refresh: Duration,
    /// Proxies, certificates and limits of origins by URL.
    pub http: HttpOptions,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}: another process uses this cache")]
    Busy(PathBuf),
    #[error(transparent)]
    Client(#[from] vouch_tree_client::Error),
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
    #[error(
        "the quota of {quota} bytes has no room for packs: manifest and index have {index} bytes; set --quota to {needed} or more"
    )]
    Quota { quota: u64, index: u64, needed: u64 },
    #[error("{origin}: {what}")]
    Origin { origin: String, what: String },
}

impl Error {
    fn is_outage(&self) -> bool {
        matches!(self, Self::Client(error) if error.class() == ErrorClass::Unreachable)
    }
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { path: path.to_owned(), source }
}
