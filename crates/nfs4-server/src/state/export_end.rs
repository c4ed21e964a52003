//! The end of exports: what was granted by one that is gone, or that shows other files now, can't be used or given back any more, and would be in the way of others for good.

use super::State;
use super::effect::Loss;
use super::entry::Kind;
use super::id::{FileRef, StateKey};
use super::slab::Ended;
use crate::ExportId;

impl<F: Clone> State<F> {
    /// Ends all opens, locks, delegations and copies that were granted by these exports. The clients stay. O(n) in all state.
    pub fn end_exports(&mut self, gone: &[ExportId], now: u64) {
        self.latest_ms = now;
        self.drop_waiters_at(gone);
        let states: Vec<StateKey> = self.states.iter().filter(|(_, entry)| gone.contains(&entry.export)).map(|(key, _)| key).collect();
        for key in states {
            match self.states.get(key).map(|entry| &entry.kind) {
                Some(Kind::Open(open)) => {
                    let owner = open.owner;
                    self.drop_open(key, Ended::Freed, Some(Loss::Revoked));
                    self.settle_owner(owner);
                }
                Some(Kind::Delegation(_)) => self.revoke_for(key, Loss::Revoked),
                Some(Kind::Copy(_)) => self.drop_copy(key, Ended::Freed),
                // Locks go with their opens.
                Some(Kind::Lock(_) | Kind::Revoked | Kind::Closed(_)) | None => {}
            }
        }
    }

    fn drop_waiters_at(&mut self, gone: &[ExportId]) {
        let files: Vec<FileRef> = self
            .files
            .table
            .iter()
            .filter(|(_, state)| state.waiters.iter().any(|waiter| waiter.is_at(gone)))
            .map(|(key, _)| key)
            .collect();
        for file in files {
            let clients = &mut self.clients;
            self.files[file].waiters.retain(|waiter| {
                let lost = waiter.is_at(gone);
                if lost {
                    clients[waiter.client].waiters -= 1;
                }
                !lost
            });
            self.settle(file);
        }
    }
}
