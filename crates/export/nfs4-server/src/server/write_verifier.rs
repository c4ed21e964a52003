//! RFC 8881 §18.32.3. The kernel reports lost data once per descriptor, perhaps to a concurrent
//! sync of the file. So a failed sync changes the verifier for all clients, and a successful one
//! waits for the others.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use vouch_vfs::Error::{self, Io, NoSpace, Quota, Resources};

use crate::state::FileKey;

#[derive(Default)]
pub(crate) struct SyncTracker {
    losses: AtomicU64,
    running: Mutex<RunningSyncs>,
    ended: Condvar,
}

#[derive(Default)]
struct RunningSyncs {
    next: u64,
    of: HashMap<FileKey, BTreeSet<u64>>,
}

/// A panic counts as failure.
struct SyncInProgress<'a> {
    tracker: &'a SyncTracker,
    files: &'a [FileKey],
    number: u64,
    failed: bool,
}

impl SyncTracker {
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }

    pub(crate) fn watched<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if is_loss(&result) {
            self.losses.fetch_add(1, Ordering::SeqCst);
        }
        result
    }

    /// A failure counts before any concurrent sync is answered.
    pub(crate) fn during<T>(
        &self,
        files: &[FileKey],
        act: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut under = self.begin(files);
        let result = act();
        under.failed = is_loss(&result);
        result
    }

    pub(crate) fn alone<T>(
        &self,
        file: FileKey,
        act: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let result = self.during(&[file], act)?;
        let mut running = self.running.lock();
        let before = running.next;
        while running.of.get(&file).and_then(BTreeSet::first).is_some_and(|&first| first < before) {
            self.ended.wait(&mut running);
        }
        Ok(result)
    }

    fn begin<'a>(&'a self, files: &'a [FileKey]) -> SyncInProgress<'a> {
        let mut running = self.running.lock();
        let number = running.next;
        running.next += 1;
        for file in files {
            running.of.entry(*file).or_default().insert(number);
        }
        SyncInProgress { tracker: self, files, number, failed: true }
    }
}

impl Drop for SyncInProgress<'_> {
    fn drop(&mut self) {
        if self.failed {
            self.tracker.losses.fetch_add(1, Ordering::SeqCst);
        }
        let mut running = self.tracker.running.lock();
        for file in self.files {
            if let Some(numbers) = running.of.get_mut(file) {
                numbers.remove(&self.number);
                if numbers.is_empty() {
                    running.of.remove(file);
                }
            }
        }
        drop(running);
        self.tracker.ended.notify_all();
    }
}

fn is_loss<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Io(_) | NoSpace | Quota | Resources(_)))
}
