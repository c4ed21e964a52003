//! `.snapshot/NAME` in each directory of an export: the same directory as it was in a snapshot.
//!
//! [`SnapshotFs`] wraps the live directory. Each snapshot in use is a read-only [`PosixFs`] of its
//! own, so rights, handles and the confinement below its root are those of any export. Snapshots
//! are found by listing a directory each time, so a new one appears without a restart. An
//! identity names its snapshot by a number that `source.rs` derives from what is on disk.

mod file_system;
mod identity;
mod in_use;
mod list;
mod pattern;
mod source;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use vouch_vfs::{Blocking, Error, Result};

use crate::errno::error;
use crate::export::{ExportError, Inner, Options, PosixFs};
use crate::open::mono_ms;
use in_use::SnapshotInUse;
pub use pattern::SnapshotPattern;
use source::{SNAPSHOTS_MAX, SnapshotDirectory, SnapshotEntry};

/// As NetApp and others call it.
pub(crate) const SNAPSHOT_DIRECTORY: &[u8] = b".snapshot";

/// Each has three descriptors, which come from those of the process. The least recently used is
/// closed.
const OPEN_COUNT_MAX: u64 = 512;
const DESCRIPTORS_PART: u64 = 32;
/// An unused snapshot is closed, so that it can be unmounted.
const IDLE_MS_MAX: u64 = 30_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotOptions {
    /// `None`: where the file system itself shows its snapshots.
    pub pattern: Option<SnapshotPattern>,
    /// Lists `.snapshot` in the export's root. Elsewhere it is found, but not listed.
    pub is_visible: bool,
}

pub struct SnapshotFs {
    live: PosixFs,
    pattern: SnapshotPattern,
    is_visible: bool,
    open: RwLock<HashMap<u64, Arc<Snapshot>>>,
    open_count_max: usize,
    /// Each that was opened and still has open files.
    in_use: Mutex<Vec<SnapshotInUse>>,
    last_list: Mutex<Arc<list::SeenList>>,
    /// One call at a time opens all snapshots; others then have its list.
    listing: Mutex<()>,
    /// A READDIR of `.snapshot` may open each snapshot too. One at a time leaves the other processors
    /// to other calls, whoever sends them.
    reading: Mutex<()>,
}

struct Snapshot {
    number: u64,
    name: Vec<u8>,
    files: PosixFs,
    used_ms: AtomicU64,
}

impl SnapshotFs {
    /// # Errors
    /// If the directory of the snapshots is unknown or cannot be opened.
    pub fn open(live: PosixFs, options: SnapshotOptions) -> std::result::Result<Self, ExportError> {
        let pattern = options
            .pattern
            .or_else(|| source::probe(&live.inner))
            .ok_or(ExportError::NoSnapshots)?;
        SnapshotDirectory::open(&live.inner, &pattern).map_err(|source| {
            let path: PathBuf = pattern.directory().to_owned();
            ExportError::Snapshots { path, source }
        })?;
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Ok(SnapshotFs {
            live,
            pattern,
            is_visible: options.is_visible,
            open: RwLock::default(),
            open_count_max: (descriptors / DESCRIPTORS_PART).clamp(1, OPEN_COUNT_MAX) as usize,
            in_use: Mutex::default(),
            last_list: Mutex::default(),
            listing: Mutex::default(),
            reading: Mutex::default(),
        })
    }

    /// `None` if it is missing: then there are no snapshots.
    fn directory(&self) -> Result<Option<SnapshotDirectory<'_>>> {
        match SnapshotDirectory::open(&self.live.inner, &self.pattern) {
            Err(Error::NotFound | Error::NotDirectory | Error::IsSymlink) => Ok(None),
            directory => directory.map(Some),
        }
    }

    fn named(&self, name: &[u8]) -> Result<Arc<Snapshot>> {
        let directory = self.directory()?.ok_or(Error::NotFound)?;
        self.keep(name, directory.find(name)?.ok_or(Error::NotFound)?)
    }

    /// Lists the snapshots if this one is not open. Then `WouldBlock` unless the call may wait.
    fn numbered(&self, number: u64, blocking: Blocking) -> Result<Arc<Snapshot>> {
        if let Some(known) = self.open.read().get(&number) {
            known.used_ms.store(mono_ms(), Ordering::Relaxed);
            return Ok(Arc::clone(known));
        }
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let (name, found) = self.find(number)?.ok_or(Error::Stale)?;
        self.keep(&name, found)
    }

    /// `None` if the list was complete and readable and lacks it. A snapshot that is being renamed
    /// or mounted may be missing for a moment.
    fn find(&self, number: u64) -> Result<Option<(Vec<u8>, SnapshotEntry)>> {
        let Some(directory) = self.directory()? else { return Ok(None) };
        let list = self.list_of(Some(&directory))?;
        if let Some(name) = list.names.get(&number)
            && let Some(found) = directory.find(name)?.filter(|found| found.number == number)
        {
            return Ok(Some((name.clone(), found)));
        }
        // It may be among the others, so the answer is not that it is gone.
        let too_many = || {
            Error::Io(std::io::Error::other(format!(
                "{SNAPSHOTS_MAX} snapshots at most are listed"
            )))
        };
        list.failure
            .map(error)
            .or_else(|| list.is_cut.then(too_many))
            .or(list.has_closed.then_some(Error::Access))
            .map_or(Ok(None), Err)
    }

    fn keep(&self, name: &[u8], found: SnapshotEntry) -> Result<Arc<Snapshot>> {
        if let Some(known) = self.open.read().get(&found.number).filter(|known| known.name == name)
        {
            known.used_ms.store(mono_ms(), Ordering::Relaxed);
            return Ok(Arc::clone(known));
        }
        let options = Options {
            read_only: true,
            cross_mounts: false,
            subtree_check: false,
            snapshot: Some(found.number),
            ..self.live.inner.options.clone()
        };
        let files = PosixFs::open(Path::new(&Inner::descriptor_path(found.fd.as_fd())), options)
            .map_err(|failure| match failure {
                ExportError::Open { source, .. } => {
                    Errno::from_io_error(&source).map_or(Error::Io(source), error)
                }
                ExportError::NeedsIds(_) => Error::NotSupported,
                other => Error::Io(std::io::Error::other(other)),
            })?;
        let used_ms = AtomicU64::new(mono_ms());
        self.in_use.lock().push(SnapshotInUse::new(found.number, name, &files));
        let snapshot =
            Arc::new(Snapshot { number: found.number, name: name.to_vec(), files, used_ms });
        let mut open = self.open.write();
        let oldest = open
            .values()
            .min_by_key(|open| open.used_ms.load(Ordering::Relaxed))
            .map(|open| open.number);
        let closed = oldest
            .filter(|_| open.len() >= self.open_count_max)
            .and_then(|oldest| open.remove(&oldest));
        open.insert(found.number, Arc::clone(&snapshot));
        drop(open);
        drop(closed);
        Ok(snapshot)
    }

    /// Closes snapshots that are unused, renamed or gone. Files of a deleted subvolume would stay
    /// readable as long as it is open.
    fn close_unused(&self) {
        let open: Vec<Arc<Snapshot>> = self.open.read().values().cloned().collect();
        for snapshot in open {
            let is_idle =
                snapshot.used_ms.load(Ordering::Relaxed).saturating_add(IDLE_MS_MAX) < mono_ms();
            if is_idle || !self.still_has(snapshot.number, &snapshot.name) {
                self.open.write().remove(&snapshot.number);
            }
        }
    }

    fn still_has(&self, number: u64, name: &[u8]) -> bool {
        let Ok(Some(directory)) = self.directory() else { return false };
        matches!(directory.find(name), Ok(Some(found)) if found.number == number)
    }
}
