//! Options, progress and report of a pull.

use std::path::PathBuf;
use std::time::Duration;

use vouch_tree_store::WriteOptions;

use crate::client::TreeOptions;

#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Directory of the database; created if missing.
    pub db: PathBuf,
    pub tree: TreeOptions,
    /// Number of revisions to keep, besides tagged ones; `None`: all.
    pub keep: Option<usize>,
    /// Limit on bytes requested but not yet written: bounds the memory.
    pub in_flight_bytes: u64,
    /// Whether to reclaim the space of frames that no kept revision references.
    pub collect: bool,
    pub pack_len_max: u32,
    /// How long to wait for another writer of the database.
    pub lock_wait: Duration,
}

impl PullOptions {
    /// Pulls into `db` and keeps all revisions.
    pub fn new(db: impl Into<PathBuf>) -> Self {
        Self {
            db: db.into(),
            tree: TreeOptions::default(),
            keep: None,
            in_flight_bytes: 16 << 20,
            collect: true,
            pack_len_max: WriteOptions::default().pack_len_max,
            lock_wait: Duration::ZERO,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullPhase {
    /// Finding replicas and the newest revision.
    Connecting,
    /// Fetching missing frames.
    Frames,
    /// Fetching the signed fsinfos of older revisions.
    History,
    /// Writing the new revision durably.
    Commit,
    /// Removing frames that no kept revision references.
    Collect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    pub phase: PullPhase,
    pub frames_done: u64,
    /// Frames fetched or known to be missing; grows while directories are read.
    pub frames_known: u64,
    /// Bytes fetched, as stored.
    pub bytes: u64,
    /// Frames that were present already.
    pub frames_present: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullReport {
    /// The revision that the database has now.
    pub revision: u64,
    /// Whether the database had it before.
    pub was_current: bool,
    pub new_frames: u64,
    /// Bytes of these frames, as stored.
    pub new_bytes: u64,
    /// Frames that were present already; an unchanged directory counts once.
    pub present_frames: u64,
    /// Signed fsinfos of older revisions fetched.
    pub history_frames: u64,
    /// Disk space reclaimed.
    pub collected_bytes: u64,
    pub elapsed: Duration,
}

/// Receives progress; called often, from any thread.
pub type PullProgressFn = dyn Fn(PullProgress) + Send + Sync;
