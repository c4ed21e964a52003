//! During a commit of a file system, further calls wait for the next, which serves them all.

use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vouch_nfs4_server::{BlockedOn, Compound, ExportId};

use super::blocked_call::BlockedCall;
use super::state::Driver;
use crate::gss;
use crate::limits::WAITING_MAX;
use crate::thread_pool::TaskOrigin;
use crate::transport::connection::Connection;
use crate::transport::output::Outgoing;

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
    pub(crate) fn queue_commit(
        self: &Arc<Self>,
        export: ExportId,
        waiting: BlockedCall,
    ) -> Option<BlockedCall> {
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
        let commit = AssertUnwindSafe(|| {
            Compound::sync_batch(
                &self.engine,
                batch.iter_mut().map(|waiting| &mut waiting.compound),
            )
        });
        if catch_unwind(commit).is_err() {
            tracing::error!("a group commit panicked; this is a bug in vouch");
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
