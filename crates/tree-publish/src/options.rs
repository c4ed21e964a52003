//! What a caller asks of a publication, watches of it and gets back.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Counts, TreeName};

/// The compression of zstd where the caller has no opinion.
pub const LEVEL_DEFAULT: i32 = 3;

/// A directory that holds a file of this name lists only what has been referenced.
pub const OPAQUE_MARKER: &str = ".vouch-opaque";

/// So many skipped files are listed by name; the rest is counted.
pub const SKIPPED_COUNT_MAX: usize = 10_000;

/// The key that signs, and its certificate.
pub struct Signer<'a> {
    /// The signing key, not the root key.
    pub key: &'a SecretKey,
    /// The root key's word for it.
    pub cert: SigningCert,
}

/// What to publish, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory.
    pub source: PathBuf,
    /// The tree's name, for the summary; its HOSTID is the database's.
    pub name: TreeName,
    /// When the revision starts, in seconds since 1970.
    pub start: u64,
    /// Go on although the newest revision starts later than this one: the clock was ahead when it
    /// was made.
    pub clock_was_ahead: bool,
    /// How long it is valid from then.
    pub duration_s: u32,
    /// A name for the revision, which also keeps it.
    pub tag: Option<String>,
    /// Keep so many revisions and the tagged ones; `None` keeps all.
    pub keep: Option<usize>,
    /// Read every file, whatever the stat cache says.
    pub rehash: bool,
    /// Leave out what can't be read, and list it, instead of stopping.
    pub skip_unreadable: bool,
    /// Do not descend into other file systems; their mount points become empty directories.
    pub one_file_system: bool,
    /// Directories that list only what has been referenced, relative to the source.
    pub opaque: Vec<PathBuf>,
    /// Devices and inodes of what must never be published: the keys, and the directory that holds
    /// them. Meeting one ends the publication.
    pub private: Vec<(u64, u64)>,
    /// Compression of zstd; 0 stores frames raw.
    pub level: i32,
    /// Threads; 0 is one a core.
    pub threads: usize,
}

impl Options {
    /// A plain publication of `source`.
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

/// How far a publication has come; shared with whoever draws the bar.
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
    /// Names that are no directories, looked at so far.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Directories listed so far.
    pub fn dirs(&self) -> u64 {
        self.dirs.load(Ordering::Relaxed)
    }

    /// Sizes of the files looked at, read or not.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Asks the publication to end soon, with [`crate::Error::Stopped`].
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What a publication did.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The tree's name.
    pub name: TreeName,
    /// The new revision.
    pub revision: u64,
    /// The first second at which it is no longer valid, since 1970.
    pub expires: u64,
    /// What the tree holds.
    pub counts: Counts,
    /// Bytes of frames that were not in the database.
    pub new_bytes: u64,
    /// Bytes of frames that were met again.
    pub shared_bytes: u64,
    /// Frames that were not in the database.
    pub new_frames: u64,
    /// Frames that were met again.
    pub shared_frames: u64,
    /// Regular files that were read.
    pub files_read: u64,
    /// Bytes that were read of them.
    pub bytes_read: u64,
    /// Files and directories that changed while they were read, and were read again.
    pub reread: u64,
    /// Bytes that a run that was killed had left, and that this one could use.
    pub adopted_bytes: u64,
    /// What was left out, the first [`SKIPPED_COUNT_MAX`] by name.
    pub skipped: Vec<Skipped>,
    /// How many were left out.
    pub skipped_count: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// A file that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path, ready for printing.
    pub path: String,
    /// Why.
    pub why: String,
}
