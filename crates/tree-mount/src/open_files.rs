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

/// The open files of a mount.
#[derive(Default)]
pub(crate) struct OpenFiles {
    is_on: AtomicBool,
    pub(crate) balance: Balance,
    files: Mutex<HashMap<NodeId, Mode>>,
}

/// How a file is open.
enum Mode {
    /// So often, through the kernel's cache and our reads.
    Cached(u64),
    /// So often, read by the kernel from a backing file.
    Through(Arc<Through>, u64),
}

/// A backing file under open files.
pub(crate) struct Through {
    pub(crate) whole: tokio::sync::Mutex<WholeFile>,
    pub(crate) id: BackingId,
}

impl OpenFiles {
    /// The kernel and this user can have passthrough.
    pub(crate) fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Ends passthrough for good.
    pub(crate) fn turn_off(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    /// Whether opens are to be answered.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Lets the kernel not ask any more, unless it reads a file by itself just now: it refuses
    /// every open of that one that was not asked for.
    pub(crate) fn stop_asking(&self) {
        let files = self.files.lock();
        if self.is_on() && !files.values().any(|mode| matches!(mode, Mode::Through(..))) {
            self.is_on.store(false, Ordering::Release);
            tracing::info!("mostly small files are opened: the kernel is told not to ask any more, no file is passed through from now on");
        }
    }

    /// How many files are read by the kernel itself at the moment.
    pub(crate) fn through_count(&self) -> usize {
        self.files.lock().values().filter(|mode| matches!(mode, Mode::Through(..))).count()
    }

    /// Counts one open, of the kind that the file is open in, or that it is to be opened in.
    pub(crate) fn open(&self, id: NodeId, choose: impl FnOnce() -> Option<Through>) -> Option<Arc<Through>> {
        let mut files = self.files.lock();
        match files.get_mut(&id) {
            Some(Mode::Cached(count)) => *count += 1,
            Some(Mode::Through(through, count)) => {
                *count += 1;
                return Some(through.clone());
            }
            None => match choose().map(Arc::new) {
                Some(through) => {
                    files.insert(id, Mode::Through(through.clone(), 1));
                    return Some(through);
                }
                None => drop(files.insert(id, Mode::Cached(1))),
            },
        }
        None
    }

    /// Takes one open back. True if it was the last through the kernel's cache.
    pub(crate) fn close(&self, id: NodeId) -> bool {
        let mut files = self.files.lock();
        let (was_last, was_cached) = match files.get_mut(&id) {
            None => return false,
            Some(Mode::Cached(count)) => (std::mem::replace(count, count.saturating_sub(1)) <= 1, true),
            Some(Mode::Through(_, count)) => (std::mem::replace(count, count.saturating_sub(1)) <= 1, false),
        };
        // Dropping the mode gives the backing file back: after the lock.
        let ended = was_last.then(|| files.remove(&id)).flatten();
        drop(files);
        drop(ended);
        was_last && was_cached
    }

    pub(crate) fn through(&self, id: NodeId) -> Option<Arc<Through>> {
        match self.files.lock().get(&id) {
            Some(Mode::Through(through, _)) => Some(through.clone()),
            _ => None,
        }
    }

    pub(crate) fn all_through(&self) -> Vec<NodeId> {
        self.files.lock().iter().filter(|(_, mode)| matches!(mode, Mode::Through(..))).map(|(id, _)| *id).collect()
    }
}
