//! Open files, by how they are read: through the page cache, or from a backing file.
//!
//! The kernel demands that all opens of one file at one time are of one kind. Opens reach this
//! process only with passthrough or an observer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::BackingId;
use parking_lot::Mutex;
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree_client::WholeFile;

use crate::passthrough_balance::Balance;

#[derive(Default)]
pub(crate) struct OpenFiles {
    is_on: AtomicBool,
    pub(crate) balance: Balance,
    files: Mutex<HashMap<NodeId, Mode>>,
}

enum Mode {
    Cached(u64),
    /// Number of opens, read by the kernel from a backing file.
    Passthrough(Arc<BackingFile>, u64),
}

pub(crate) struct BackingFile {
    pub(crate) whole: tokio::sync::Mutex<WholeFile>,
    pub(crate) id: BackingId,
}

impl OpenFiles {
    /// Turns passthrough on: kernel and user support it.
    pub(crate) fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    pub(crate) fn turn_off(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Turns passthrough off, unless a file is passed through now: the kernel would refuse further
    /// opens of it.
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

    pub(crate) fn open(&self, id: NodeId, choose: impl FnOnce() -> Option<BackingFile>) -> Option<Arc<BackingFile>> {
        let mut files = self.files.lock();
        match files.get_mut(&id) {
            Some(Mode::Cached(count)) => *count += 1,
            Some(Mode::Passthrough(backing, count)) => {
                *count += 1;
                return Some(backing.clone());
            }
            None => match choose().map(Arc::new) {
                Some(backing) => {
                    files.insert(id, Mode::Passthrough(backing.clone(), 1));
                    return Some(backing);
                }
                None => drop(files.insert(id, Mode::Cached(1))),
            },
        }
        None
    }

    /// Undoes an open. Returns whether it was the last one through the page cache.
    pub(crate) fn close(&self, id: NodeId) -> bool {
        let mut files = self.files.lock();
        let (was_last, was_cached) = match files.get_mut(&id) {
            None => return false,
            Some(Mode::Cached(count)) => (std::mem::replace(count, count.saturating_sub(1)) <= 1, true),
            Some(Mode::Passthrough(_, count)) => (std::mem::replace(count, count.saturating_sub(1)) <= 1, false),
        };
        // Dropping the mode releases the backing file, which must not happen under the lock.
        let ended = was_last.then(|| files.remove(&id)).flatten();
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
        self.files.lock().iter().filter(|(_, mode)| matches!(mode, Mode::Passthrough(..))).map(|(id, _)| *id).collect()
    }
}
