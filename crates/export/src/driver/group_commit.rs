//! Calls that wait for nothing but that their changes are on the disk, gathered by export: while
//! one commit of a file system's journal is under way, those that come wait for the next, which
//! serves them all, and their replies leave commit. One thread an export, and only while somebody
//! waits.

use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vouch_nfs4_server::{Compound, ExportId};

use super::blocked_call::{BlockedCall, BlockedOn};
use super::state::Driver;
use crate::gss;
use crate::limits::WAITING_MAX;
use crate::thread_pool::TaskOrigin;
use crate::transport::connection::Connection;
use crate::transport::output::Outgoing;

/// After a panic, those that wait are served by somebody else.
struct RestartOnPanic<'a> {
    driver: &'a Arc<Driver>,
    export: ExportId,
}

impl Drop for RestartOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.driver.run_commits(self.export);
        }
    }
}

impl Driver {
    /// Has a call go on when its changes are on the disk. It is given back if so many wait that it
    /// had better wait by itself.
    pub(crate) fn queue_commit(self: &Arc<Self>, export: ExportId, waiting: BlockedCall) -> Option<BlockedCall> {
        match self.commit_queue.waiting.lock().entry(export) {
            Entry::Occupied(others) if others.get().len() >= WAITING_MAX => return Some(waiting),
            Entry::Occupied(mut others) => {
                others.get_mut().push(waiting);
                return None;
            }
            Entry::Vacant(place) => place.insert(vec![waiting]),
        };
        self.run_commits(export);
        None
    }

    fn run_commits(self: &Arc<Self>, export: ExportId) {
        let driver = self.clone();
        self.pool.submit(TaskOrigin::Server, move || {
            let _restart = RestartOnPanic { driver: &driver, export };
            while driver.commit_batch(export) {}
        });
    }

    /// Finishes the calls of an export that wait now. False if there were none, and from then on
    /// somebody else must be asked.
    fn commit_batch(self: &Arc<Self>, export: ExportId) -> bool {
        let mut batch = {
            let mut waiting = self.commit_queue.waiting.lock();
            match waiting.get_mut(&export) {
                Some(batch) if !batch.is_empty() => std::mem::take(batch),
                _ => {
                    waiting.remove(&export);
                    return false;
                }
            }
        };
        let commit = AssertUnwindSafe(|| Compound::sync_together(&self.engine, batch.iter_mut().map(|waiting| &mut waiting.compound)));
        // Where that panics each tries by itself, and is answered whatever becomes of it.
        if catch_unwind(commit).is_err() {
            tracing::error!("to make changes durable ended in a panic; this is an error in this program");
        }
        let mut replies: Vec<(Arc<Connection>, usize, Vec<Outgoing>)> = Vec::new();
        for waiting in batch {
            let connection = waiting.connection.clone();
            let outgoing = self.finish(waiting, BlockedOn::Disk);
            match replies.iter_mut().find(|(known, ..)| Arc::ptr_eq(known, &connection)) {
                Some((_, calls, ready)) => {
                    *calls += 1;
                    ready.extend(outgoing);
                }
                None => replies.push((connection, 1, outgoing.into_iter().collect())),
            }
        }
        gss::seal_all(replies.iter_mut().flat_map(|(.., ready)| ready));
        for (connection, calls, ready) in replies {
            if !ready.is_empty() {
                connection.send(ready, |_| {});
            }
            (0..calls).for_each(|_| connection.end_waiting());
        }
        true
    }
}
