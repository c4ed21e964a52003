//! The driver of databases in object storage is another crate: this one needs no network. A local
//! work directory holds copies of manifest and index, new packs until their commit, and a cache of
//! packs.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::disk::Disk;
use crate::garbage::Garbage;

/// Errors are [`BucketError`]s in an [`io::Error`], or errors of the work directory.
pub trait BucketDatabase: fmt::Debug + Send + Sync {
    fn work_dir(&self) -> &Path;

    /// A disk over the work directory. Syncing a file uploads it. Renaming the manifest replaces
    /// its object unless another writer has.
    fn disk(&self) -> Arc<dyn Disk>;

    /// Updates local copies unless they are younger than `age_max`. False if the bucket has no
    /// database.
    fn refresh(&self, age_max: Duration) -> io::Result<bool>;

    /// An object under the prefix that belongs to no database.
    fn foreign_object(&self) -> io::Result<Option<String>>;

    /// The writer's lock. [`BucketErrorKind::Busy`] after `wait`.
    fn lock(&self, wait: Duration) -> io::Result<BucketLock>;

    /// `is_fresh`: the bytes that the bucket has now.
    fn local_pack(&self, name: &str, is_fresh: bool) -> io::Result<PathBuf>;

    /// An object that no cache keeps, up to this length; `None` if it is missing.
    fn read_object(&self, object: &str, len_max: u64) -> io::Result<Option<Vec<u8>>>;

    fn is_cached(&self, name: &str) -> bool;

    /// Names after `after`, and lengths, in a directory of the database.
    fn list(&self, dir: &str, after: &str) -> io::Result<Vec<(String, u64)>>;

    /// Moves a committed pack of the work directory to the cache.
    fn note_committed(&self, pack: &Path) -> io::Result<()>;

    /// Objects that no manifest names. New ones are recorded with this time.
    fn record_garbage(&self, named: &HashSet<String>, now_s: u64) -> io::Result<Garbage>;

    fn delete(&self, objects: &[String]) -> io::Result<()>;
}

pub struct BucketLock {
    /// Held as long as the lock.
    pub guard: Box<dyn Any + Send + Sync>,
    /// An earlier writer may have left objects that no manifest names.
    pub has_leftovers: bool,
}

impl fmt::Debug for BucketLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketLock")
            .field("has_leftovers", &self.has_leftovers)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct BucketError {
    pub kind: BucketErrorKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketErrorKind {
    Missing,
    /// Another writer holds the lock, or has replaced the manifest.
    Busy,
    Denied,
    Unreachable,
    Invalid,
}

impl From<BucketError> for io::Error {
    fn from(error: BucketError) -> Self {
        Self::other(error)
    }
}

pub type OpenBucketFn = fn(&str) -> io::Result<Arc<dyn BucketDatabase>>;

/// Handles paths that begin with `s3://`. Later calls change nothing.
pub fn register_bucket_driver(open: OpenBucketFn) {
    let _ = DRIVER.set(open);
}

pub fn is_bucket_address(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(SCHEME.as_bytes())
}

pub(crate) fn open(path: &Path) -> io::Result<Option<Arc<dyn BucketDatabase>>> {
    if !is_bucket_address(path) {
        return Ok(None);
    }
    let invalid = |text: String| BucketError { kind: BucketErrorKind::Invalid, text };
    let address = path.to_str().ok_or_else(|| invalid(format!("{}: not UTF-8", path.display())))?;
    let driver = DRIVER.get().ok_or_else(|| {
        invalid(format!("{address}: this program has no driver for object storage"))
    })?;
    driver(address).map(Some)
}

const SCHEME: &str = "s3://";

static DRIVER: OnceLock<OpenBucketFn> = OnceLock::new();
