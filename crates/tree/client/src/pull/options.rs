use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vouch_tree_store::Retention;
use vouch_tree_store::disk::{Disk, SystemDisk};

use crate::client::TreeOptions;
use crate::http::HttpOptions;

/// Options of a pull.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Created if missing.
    pub db: PathBuf,
    /// Replicas to pull from.
    pub tree: TreeOptions,
    /// Revisions to keep, besides tagged ones; `None`: all.
    pub keep: Option<Retention>,
    /// Bytes requested but not written: bounds the memory.
    pub in_flight_bytes: u64,
    /// Frees the space of frames that no kept revision references.
    pub collect: bool,
    /// Of new packs, in bytes: see [`vouch_tree_store::WriteOptions`].
    pub pack_len: Option<u32>,
    /// For copying the log of revisions from the replicas and the host in the name, which all
    /// answer HTTP. `None`: it is not copied.
    pub http: Option<HttpOptions>,
    /// Limit of the wait for another writer of the database.
    pub lock_wait: Duration,
    /// Receives all writes to the database.
    pub disk: Arc<dyn Disk>,
}

impl PullOptions {
    /// Keeps all revisions and does not wait for another writer.
    pub fn new(db: impl Into<PathBuf>) -> Self {
        Self {
            db: db.into(),
            tree: TreeOptions::default(),
            keep: None,
            in_flight_bytes: 16 << 20,
            collect: true,
            pack_len: None,
            http: None,
            lock_wait: Duration::ZERO,
            disk: Arc::new(SystemDisk),
        }
    }
}

/// The steps of a pull, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullPhase {
    /// Opens the tree.
    Connecting,
    /// Fetches the frames of the newest revision.
    Frames,
    /// Fetches the signed fsinfos of earlier revisions.
    History,
    /// Makes the revision visible in the database.
    Commit,
    /// Frees space.
    Collect,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    /// The step in progress.
    pub phase: PullPhase,
    /// Fetched.
    pub frames_done: u64,
    /// Fetched or known to be missing; grows while directories are read.
    pub frames_known: u64,
    /// Size as stored.
    pub bytes: u64,
    /// Already in the database.
    pub frames_present: u64,
}

/// What a pull did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullReport {
    /// Now the newest in the database.
    pub revision: u64,
    /// The database had it before.
    pub was_current: bool,
    /// Fetched.
    pub new_frames: u64,
    /// Size as stored.
    pub new_bytes: u64,
    /// An unchanged directory counts once.
    pub present_frames: u64,
    /// Signed fsinfos of earlier revisions that were fetched.
    pub history_frames: u64,
    /// Of packs that the database no longer names.
    pub collected_bytes: u64,
    /// From the call to the end.
    pub elapsed: Duration,
}

/// Called often, from any thread.
pub type PullProgressFn = dyn Fn(PullProgress) + Send + Sync;
