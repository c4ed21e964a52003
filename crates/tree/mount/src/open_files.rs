use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vouch_tree::Blob;
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree_client::WholeFile;

use crate::fuse_device::Backing;
use crate::journal::Journal;
use crate::journal::record::{BackingRecord, OpenRecord, Record};
use crate::passthrough_balance::Balance;

pub(crate) struct OpenFiles {
    journal: Option<Arc<Journal>>,
    is_on: AtomicBool,
    pub(crate) balance: Balance,
    files: Mutex<HashMap<NodeId, Mode>>,
}

enum Mode {
    Cached(u64),
    /// Number of opens. The kernel reads the backing file.
    Passthrough(Arc<BackingFile>, u64),
}

pub(crate) struct BackingFile {
    /// `None`: opened by another process, and not found by this one.
    pub(crate) whole: tokio::sync::Mutex<Option<WholeFile>>,
    pub(crate) blob: Blob,
    pub(crate) inode: u64,
    pub(crate) id: Backing,
}

impl OpenFiles {
    pub(crate) fn new(journal: Option<Arc<Journal>>) -> Self {
        Self {
            journal,
            is_on: AtomicBool::new(false),
            balance: Balance::default(),
            files: Mutex::default(),
        }
    }

    /// Opened `count` times through another process.
    pub(crate) fn restore(&self, id: NodeId, count: u64, backing: Option<BackingFile>) {
        let mode = backing
            .map_or(Mode::Cached(count), |backing| Mode::Passthrough(Arc::new(backing), count));
        self.files.lock().insert(id, mode);
    }

    pub(crate) fn record_all(&self, journal: &Journal) {
        let files = self.files.lock();
        journal.append(files.iter().map(|(id, mode)| mode.record(*id)));
    }

    fn record(&self, id: NodeId, mode: Option<&Mode>) {
        if let Some(journal) = &self.journal {
            journal.append([mode
                .map_or(Record::Open(OpenRecord { id, count: 0, backing: None }), |mode| {
                    mode.record(id)
                })]);
        }
    }

    pub(crate) fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    pub(crate) fn turn_off(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    pub(crate) fn turn_off_if_unused(&self) {
        let files = self.files.lock();
        if self.is_on() && !files.values().any(|mode| matches!(mode, Mode::Passthrough(..))) {
            self.is_on.store(false, Ordering::Release);
            tracing::info!("mostly small files are opened: passthrough is off from now on");
        }
    }

    pub(crate) fn passthrough_count(&self) -> usize {
        self.files.lock().values().filter(|mode| matches!(mode, Mode::Passthrough(..))).count()
    }

    pub(crate) fn open(
        &self,
        id: NodeId,
        choose: impl FnOnce() -> Option<BackingFile>,
    ) -> Option<Arc<BackingFile>> {
        let mut files = self.files.lock();
        let mode = match files.entry(id) {
            Entry::Occupied(there) => {
                let mode = there.into_mut();
                match mode {
                    Mode::Cached(count) | Mode::Passthrough(_, count) => *count += 1,
                }
                mode
            }
            Entry::Vacant(place) => place.insert(match choose().map(Arc::new) {
                Some(backing) => Mode::Passthrough(backing, 1),
                None => Mode::Cached(1),
            }),
        };
        self.record(id, Some(mode));
        match mode {
            Mode::Passthrough(backing, _) => Some(backing.clone()),
            Mode::Cached(_) => None,
        }
    }

    pub(crate) fn close(&self, id: NodeId) -> bool {
        let mut files = self.files.lock();
        let (was_last, was_cached) = match files.get_mut(&id) {
            None => return false,
            Some(Mode::Cached(count)) => {
                (std::mem::replace(count, count.saturating_sub(1)) <= 1, true)
            }
            Some(Mode::Passthrough(_, count)) => {
                (std::mem::replace(count, count.saturating_sub(1)) <= 1, false)
            }
        };
        // Releases the backing file, which must not happen under the lock.
        let ended = was_last.then(|| files.remove(&id)).flatten();
        self.record(id, files.get(&id));
        drop(files);
        drop(ended);
        was_last && was_cached
    }

    pub(crate) fn backing(&self, id: NodeId) -> Option<Arc<BackingFile>> {
        match self.files.lock().get(&id) {
            Some(Mode::Passthrough(backing, _)) => Some(backing.clone()),
            _ => None,
        }
    }

    pub(crate) fn all_passthrough(&self) -> Vec<NodeId> {
        self.files
            .lock()
            .iter()
            .filter(|(_, mode)| matches!(mode, Mode::Passthrough(..)))
            .map(|(id, _)| *id)
            .collect()
    }
}

impl BackingFile {
    pub(crate) fn new(whole: WholeFile, id: Backing) -> Self {
        let (blob, inode) = (whole.blob().clone(), whole.inode());
        Self { whole: Some(whole).into(), blob, inode, id }
    }
}

impl Mode {
    fn record(&self, id: NodeId) -> Record {
        Record::Open(match self {
            Self::Cached(count) => OpenRecord { id, count: *count, backing: None },
            Self::Passthrough(file, count) => {
                let backing = BackingRecord {
                    id: file.id.number(),
                    blob: file.blob.clone(),
                    inode: file.inode,
                };
                OpenRecord { id, count: *count, backing: Some(backing) }
            }
        })
    }
}
