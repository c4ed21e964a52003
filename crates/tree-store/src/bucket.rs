//! Databases in object storage: what the store needs from a driver, and the registry of the driver.
//!
//! The files of such a database are objects of a bucket, under the same names as in a directory. A
//! local work directory holds copies of the manifest and the index, new packs until their commit,
//! and a cache of packs. The driver is a crate of its own, so that this one needs no network.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::disk::Disk;

/// A database whose files are objects of a bucket. All errors are [`BucketError`]s in an
/// [`io::Error`], or errors of the work directory.
pub trait BucketDatabase: fmt::Debug + Send + Sync {
    fn work_dir(&self) -> &Path;

    /// A disk over the work directory. The sync of a pack or segment uploads it, and the rename of
    /// the manifest replaces the object if nobody else has.
    fn disk(&self) -> Arc<dyn Disk>;

    /// Brings manifest and index of the work directory up to date, unless they were within the last
    /// `age_max`. False if the bucket has no database.
    fn refresh(&self, age_max: Duration) -> io::Result<bool>;

    /// The name of an object under the prefix that belongs to no database.
    fn foreign_object(&self) -> io::Result<Option<String>>;

    /// Takes the lock of the database's writer. [`BucketErrorKind::Busy`] after `wait`.
    fn lock(&self, wait: Duration) -> io::Result<BucketLock>;

    /// Path of a local copy of a pack. `is_fresh` asks for the bytes that the bucket has now.
    fn local_pack(&self, name: &str, is_fresh: bool) -> io::Result<PathBuf>;

    /// Whether the cache has a copy of a pack.
    fn is_cached(&self, name: &str) -> bool;

    /// Names and lengths of objects in a directory of the database that come after `after`.
    fn list(&self, dir: &str, after: &str) -> io::Result<Vec<(String, u64)>>;

    /// Makes a committed pack of the work directory part of the cache.
    fn note_committed(&self, pack: &Path) -> io::Result<()>;

    /// Objects that no manifest names and whose grace period has passed. Starts the period of the
    /// others.
    fn expired_objects(&self, named: &HashSet<String>, grace: Duration) -> io::Result<Vec<String>>;

    fn delete(&self, objects: &[String]) -> io::Result<()>;
}

/// The lock of a writer, released when dropped.
pub struct BucketLock {
    /// Held as long as the lock.
    pub guard: Box<dyn Any + Send + Sync>,
    /// Whether an earlier writer may have left objects that no manifest names.
    pub has_leftovers: bool,
}

impl fmt::Debug for BucketLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketLock").field("has_leftovers", &self.has_leftovers).finish_non_exhaustive()
    }
}

/// An error of a bucket. The text names bucket, object and cure.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct BucketError {
    /// What the caller may do about it.
    pub kind: BucketErrorKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketErrorKind {
    Missing,
    /// Another writer holds the lock, or has replaced the manifest.
    Busy,
    /// The bucket refuses the credentials or the request.
    Denied,
    /// The bucket does not answer.
    Unreachable,
    /// The address or configuration is invalid.
    Invalid,
}

impl From<BucketError> for io::Error {
    fn from(error: BucketError) -> Self {
        Self::other(error)
    }
}

pub type OpenBucketFn = fn(&str) -> io::Result<Arc<dyn BucketDatabase>>;

/// Registers the driver for paths that begin with `s3://`. Later calls change nothing.
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
    let driver = DRIVER.get().ok_or_else(|| invalid(format!("{address}: this program has no driver for object storage")))?;
    driver(address).map(Some)
}

const SCHEME: &str = "s3://";

static DRIVER: OnceLock<OpenBucketFn> = OnceLock::new();
