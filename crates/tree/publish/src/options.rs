use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Counts, TreeName};

use crate::log::LogPublisher;

/// The default level of zstd.
pub const LEVEL_DEFAULT: i32 = 3;

/// A directory with this file is opaque: it lists only names that were used.
pub(crate) const OPAQUE_MARKER: &str = ".vouch-opaque";

/// Listed by name; the rest is counted.
pub(crate) const SKIPPED_COUNT_MAX: usize = 10_000;

/// The signing key and its certificate by the root key.
pub struct Signer<'a> {
    /// The signing key.
    pub key: &'a SecretKey,
    /// Its certificate.
    pub cert: SigningCert,
}

/// A publication: `Options::new` has the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory that is published.
    pub source: PathBuf,
    /// Its HOSTID must be the database's.
    pub name: TreeName,
    /// Seconds since 1970.
    pub start: u64,
    /// Continues although the newest revision starts later.
    pub clock_was_ahead: bool,
    /// Validity from the start.
    pub duration_s: u32,
    /// A name for the new revision.
    pub tag: Option<String>,
    /// How many revisions stay; all if none.
    pub keep: Option<usize>,
    /// Reads files again whose times and lengths did not change.
    pub rehash: bool,
    /// Leaves out unreadable files and lists them.
    pub skip_unreadable: bool,
    /// Shows mount points as empty directories.
    pub one_file_system: bool,
    /// Directories that list only names that were used.
    pub opaque: Vec<PathBuf>,
    /// Devices and inodes of the keys and their directory. Meeting one ends the publication.
    pub private: Vec<(u64, u64)>,
    /// zstd; 0 stores frames uncompressed.
    pub level: i32,
    /// 0: one for each core.
    pub threads: usize,
    /// The source is a snapshot.
    pub snapshot: Option<SnapshotSource>,
    /// Glob patterns of names to leave out.
    pub exclude: Vec<String>,
    /// More vanished files end the publication. `None`: no limit.
    pub deletion_max: Option<DeletionMax>,
    /// Ends the publication if there are files that other users cannot read.
    pub refuse_private: RefusePrivate,
    /// Kept in an extended attribute of the root.
    pub message: Option<String>,
    /// Reads and counts, and stores nothing.
    pub is_dry_run: bool,
    /// Appends the revision to the tree's log. A tree that has a log needs it.
    pub log: Option<Arc<LogPublisher>>,
}

/// The limit of files that are gone since the last revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionMax {
    /// So many.
    Files(u64),
    /// Of the previous revision's files. Fewer than ten are no accident, unless none is left.
    Percent(u8),
}

/// When files that others cannot read end a publication.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RefusePrivate {
    /// They are published.
    #[default]
    Never,
    /// In the first revision only: a later refusal would let a tree in use expire.
    First,
    /// They end it.
    Always,
}

/// A snapshot of the source that was made for the publication.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotSource {
    /// Device of the directory that it is a snapshot of.
    pub live_device: u64,
    /// Seconds since 1970: no later than it was taken. `None`: unknown, so every file is read in
    /// this publication and in the next one.
    pub taken_s: Option<i64>,
}

impl Options {
    /// All defaults; `start` in seconds since 1970.
    pub fn new(source: PathBuf, name: TreeName, start: u64, duration_s: u32) -> Self {
        Self {
            source,
            name,
            start,
            clock_was_ahead: false,
            duration_s,
            tag: None,
            keep: None,
            rehash: false,
            skip_unreadable: false,
            one_file_system: false,
            opaque: Vec::new(),
            private: Vec::new(),
            level: LEVEL_DEFAULT,
            threads: 0,
            snapshot: None,
            exclude: Vec::new(),
            deletion_max: None,
            refuse_private: RefusePrivate::Never,
            message: None,
            is_dry_run: false,
            log: None,
        }
    }
}

/// Counts that another thread may read meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) files: AtomicU64,
    pub(crate) dirs: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) files_read: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) reread: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Files so far.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Directories so far.
    pub fn dirs(&self) -> u64 {
        self.dirs.load(Ordering::Relaxed)
    }

    /// Bytes of files so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// The publication ends soon with `Error::Stopped` and gives back what it wrote.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn count_read(&self, len: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.files_read.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.bytes_read.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A finished publication.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The tree.
    pub name: TreeName,
    /// The new revision's number.
    pub revision: u64,
    /// False: it waits for witnesses.
    pub is_visible: bool,
    /// First second after its validity, since 1970.
    pub expires: u64,
    /// Files, directories and bytes of the tree.
    pub counts: Counts,
    /// Bytes that were stored.
    pub new_bytes: u64,
    /// Size of frames that the database had.
    pub shared_bytes: u64,
    /// Frames that were stored.
    pub new_frames: u64,
    /// Frames that the database had.
    pub shared_frames: u64,
    /// Files read, not known by their times.
    pub files_read: u64,
    /// Bytes read of them.
    pub bytes_read: u64,
    /// Changed during reading and read again.
    pub reread: u64,
    /// Size of data from a killed run.
    pub adopted_bytes: u64,
    /// The first 10,000.
    pub skipped: Vec<Skipped>,
    /// Things left out, such as sockets.
    pub skipped_count: u64,
    /// Files that other users cannot read, and the path of one.
    pub private_count: u64,
    /// One file that others cannot read in the source.
    pub private_example: Option<String>,
    /// Files that the revision has fewer than the one before.
    pub deleted_files: u64,
    /// The end that the duration asked for, if the certificate ends before.
    pub end_wanted: Option<u64>,
    /// From the start to the commit.
    pub elapsed: Duration,
}

/// A thing left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path in the source.
    pub path: String,
    /// The reason in words.
    pub why: String,
}
