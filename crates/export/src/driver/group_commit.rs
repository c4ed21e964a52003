//! Calls that wait for nothing but that their changes are on the disk, gathered by export: while
//! one commit of a file system's journal is under way, those that come wait for the next, which
//! serves them all, and their replies leave together. One thread an export, and only while somebody
//! waits.

use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vouch_nfs4_server::{Compound, ExportId};

use super::blocked_call::{Place, Waiting};
use super::state::Driver;
use crate::gss;
use crate::limits::WAITING_MAX;
use crate::thread_pool::Origin;
use crate::transport::connection::Connection;
use crate::transport::output::Outgoing;

/// After a panic, those that wait are served by somebody else.
struct Others<'a> {
    driver: &'a Arc<Driver>,
    export: ExportId,
}

impl Drop for Others<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.driver.serve_gathered(self.export);
        }
    }
}

impl Driver {
    /// Has a call go on when its changes are on the disk. It is given back if so many wait that it
    /// had better wait by itself.
    pub(crate) fn gather(self: &Arc<Self>, export: ExportId, waiting: Waiting) -> Option<Waiting> {
        match self.gathered.waiting.lock().entry(export) {
            Entry::Occupied(others) if others.get().len() >= WAITING_MAX => return Some(waiting),
            Entry::Occupied(mut others) => {
                others.get_mut().push(waiting);
                return None;
            }
            Entry::Vacant(place) => place.insert(vec![waiting]),
        };
        self.serve_gathered(export);
        None
    }

    fn serve_gathered(self: &Arc<Self>, export: ExportId) {
        let driver = self.clone();
        self.pool.submit(Origin::Server, move || {
            let _others = Others { driver: &driver, export };
            while driver.sync_gathered(export) {}
        });
    }

    /// Finishes the calls of an export that wait now. False if there were none, and from then on
    /// somebody else must be asked.
    fn sync_gathered(self: &Arc<Self>, export: ExportId) -> bool {
        let mut batch = {
            let mut waiting = self.gathered.waiting.lock();
            match waiting.get_mut(&export) {
                Some(batch) if !batch.is_empty() => std::mem::take(batch),
                _ => {
                    waiting.remove(&export);
                    return false;
                }
            }
        };
        let together = AssertUnwindSafe(|| Compound::sync_together(&self.engine, batch.iter_mut().map(|waiting| &mut waiting.compound)));
        // Where that panics each tries by itself, and is answered whatever becomes of it.
        if catch_unwind(together).is_err() {
            tracing::error!("to make changes durable ended in a panic; this is an error in this program");
        }
        let mut replies: Vec<(Arc<Connection>, usize, Vec<Outgoing>)> = Vec::new();
        for waiting in batch {
            let connection = waiting.connection.clone();
            let outgoing = self.finish(waiting, Place::Disks);
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
