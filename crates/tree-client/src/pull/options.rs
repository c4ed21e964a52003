//! Options, progress and report of a pull.

use std::path::PathBuf;
use std::time::Duration;

use crate::client::TreeOptions;

/// How a database is brought up to date.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// The database's directory; made when missing.
    pub db: PathBuf,
    /// Where to pull from.
    pub tree: TreeOptions,
    /// Revisions to keep, the tagged ones aside; `None`: all.
    pub keep: Option<usize>,
    /// Bytes asked for and not yet written: bounds the memory.
    pub in_flight_bytes: u64,
    /// Whether to give back the space of what no kept revision reaches.
    pub collect: bool,
    /// How long to wait for another writer of the database.
    pub lock_wait: Duration,
}

impl PullOptions {
    /// Into `db`, keeping all revisions.
    pub fn new(db: impl Into<PathBuf>) -> Self {
        Self {
            db: db.into(),
            tree: TreeOptions::default(),
            keep: None,
            in_flight_bytes: 16 << 20,
            collect: true,
            lock_wait: Duration::ZERO,
        }
    }
}

/// What a pull is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PullPhase {
    /// Finding replicas and the newest revision.
    Connecting,
    /// Fetching what is missing.
    Frames,
    /// Fetching the signed fsinfos of older revisions.
    History,
    /// Making the new revision durable.
    Commit,
    /// Dropping what no kept revision reaches.
    Collect,
}

/// How far a pull has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    /// What it is doing.
    pub phase: PullPhase,
    /// Frames fetched.
    pub frames_done: u64,
    /// Frames fetched, and those known to be needed; grows while directories are read.
    pub frames_known: u64,
    /// Bytes fetched, as stored.
    pub bytes: u64,
    /// Frames that were here already.
    pub frames_present: u64,
}

/// What a pull has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullReport {
    /// The revision that the database offers now.
    pub revision: u64,
    /// Whether it did so before.
    pub was_current: bool,
    /// Frames fetched.
    pub new_frames: u64,
    /// Their bytes, as stored.
    pub new_bytes: u64,
    /// Frames that were here already; of an unchanged directory only the first is counted.
    pub present_frames: u64,
    /// Signed fsinfos of older revisions fetched.
    pub history_frames: u64,
    /// Space given back.
    pub collected_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// Tells how far a pull has come; called often, from any thread.
pub type PullProgressFn = dyn Fn(PullProgress) + Send + Sync;
