//! Options, progress and result of a publication.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Counts, TreeName};

pub const LEVEL_DEFAULT: i32 = 3;

/// A directory with a file of this name is opaque: it lists only names that were used.
pub const OPAQUE_MARKER: &str = ".vouch-opaque";

/// Skipped files listed by name; the rest is counted.
pub const SKIPPED_COUNT_MAX: usize = 10_000;

/// Signing key and certificate.
pub struct Signer<'a> {
    /// Signing key, not the root key.
    pub key: &'a SecretKey,
    /// Its certificate by the root key.
    pub cert: SigningCert,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub source: PathBuf,
    /// Name of the tree; its HOSTID must be the database's.
    pub name: TreeName,
    /// Start of the revision, in seconds since 1970.
    pub start: u64,
    /// Whether to continue although the newest revision starts later, because the clock was ahead
    /// then.
    pub clock_was_ahead: bool,
    /// Validity from the start.
    pub duration_s: u32,
    /// Tagged revisions are kept.
    pub tag: Option<String>,
    /// Number of revisions to keep besides tagged ones; `None` keeps all.
    pub keep: Option<usize>,
    /// Whether to read every file, whatever the stat cache says.
    pub rehash: bool,
    /// Whether to leave out unreadable files and list them.
    pub skip_unreadable: bool,
    /// Whether to leave out other file systems; their mount points become empty directories.
    pub one_file_system: bool,
    /// Opaque directories, relative to the source.
    pub opaque: Vec<PathBuf>,
    /// Devices and inodes of the keys and their directory. Meeting one ends the publication.
    pub private: Vec<(u64, u64)>,
    /// zstd level; 0 stores frames uncompressed.
    pub level: i32,
    /// 0 means one for each core.
    pub threads: usize,
}

impl Options {
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
        }
    }
}

/// Progress counters, shared with a progress bar.
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
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    pub fn dirs(&self) -> u64 {
        self.dirs.load(Ordering::Relaxed)
    }

    /// Total size of these files, read or not.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Asks the publication to stop soon, with [`crate::Error::Stopped`].
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Result of a publication.
#[derive(Debug, Clone)]
pub struct Summary {
    pub name: TreeName,
    pub revision: u64,
    /// First second after its validity, since 1970.
    pub expires: u64,
    pub counts: Counts,
    pub new_bytes: u64,
    /// Bytes of frames already in the database.
    pub shared_bytes: u64,
    pub new_frames: u64,
    pub shared_frames: u64,
    pub files_read: u64,
    pub bytes_read: u64,
    /// Files and directories that changed during reading and were read again.
    pub reread: u64,
    /// Bytes adopted from a killed run.
    pub adopted_bytes: u64,
    /// Skipped files, the first [`SKIPPED_COUNT_MAX`] by name.
    pub skipped: Vec<Skipped>,
    pub skipped_count: u64,
    pub elapsed: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub path: String,
    pub why: String,
}
