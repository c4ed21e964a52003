//! The end of exports: what was granted by one that is gone, or that shows other files now, can't be used or given back any more, and would be in the way of others for good.

use std::collections::HashMap;
use std::net::SocketAddr;

use vouch_vfs::FileId;

use super::State;
use super::effect::Loss;
use super::entry::Kind;
use super::file::FileState;
use super::id::{ClientKey, FileRef, StateKey};
use super::slab::Ended;
use super::wait::Waiter;
use crate::{ConnectionId, ExportId};

/// Something that a client holds of an export.
pub struct Held<'a> {
    /// By which it was granted.
    pub export: ExportId,
    /// The file there; none if it was met by another export first.
    pub file: Option<&'a FileId>,
    /// Where its client calls from, or called from last.
    pub peers: &'a [SocketAddr],
}

impl<F: Clone> State<F> {
    /// Ends all opens, locks, delegations and copies that were granted by these exports; how many, locks counted with their opens. The clients stay. O(n) in all state.
    pub fn end_exports(&mut self, gone: &[ExportId], now: u64) -> usize {
        if gone.is_empty() {
            return 0;
        }
        self.latest_ms = now;
        self.drop_waiters(|waiter| waiter.is_at(gone));
        let states: Vec<StateKey> = self.states.iter().filter(|(_, entry)| gone.contains(&entry.export)).map(|(key, _)| key).collect();
        self.end_states(states)
    }

    /// Ends likewise whatever is said to be lost. O(n) in all state and connections.
    pub fn end_lost(&mut self, peer: impl Fn(ConnectionId) -> Option<SocketAddr>, is_lost: impl Fn(&Held<'_>) -> bool, now: u64) -> usize {
        self.latest_ms = now;
        let peers: HashMap<ClientKey, Vec<SocketAddr>> = self.clients.iter().map(|(key, _)| (key, self.peers_of(key, &peer))).collect();
        let lost = |client: ClientKey, export: ExportId, file: Option<&FileId>| {
            is_lost(&Held { export, file, peers: peers.get(&client).map_or(&[], Vec::as_slice) })
        };
        self.drop_waiters(|waiter| lost(waiter.client, waiter.file().export, Some(&waiter.file().file)));
        let states = self.states.iter().filter(|(_, entry)| {
            let file = Some(&self.files[entry.file].key).filter(|key| key.export == entry.export);
            lost(entry.client, entry.export, file.map(|key| &key.file))
        });
        let states: Vec<StateKey> =
            states.filter(|(_, entry)| !matches!(entry.kind, Kind::Revoked | Kind::Closed(_))).map(|(key, _)| key).collect();
        self.end_states(states)
    }

    /// Where a client calls from; where it introduced itself, if it has no connection.
    fn peers_of(&self, key: ClientKey, peer: &impl Fn(ConnectionId) -> Option<SocketAddr>) -> Vec<SocketAddr> {
        let client = &self.clients[key];
        let sessions = client.v41().into_iter().flat_map(|v41| &v41.sessions);
        let bound = sessions.flat_map(|&session| self.sessions[session].connections.iter().map(|bound| bound.connection));
        let peers: Vec<SocketAddr> = bound.chain(client.connection).filter_map(peer).collect();
        if peers.is_empty() { vec![SocketAddr::new(client.address, 0)] } else { peers }
    }

    fn end_states(&mut self, states: Vec<StateKey>) -> usize {
        let mut ended = 0;
        for key in states {
            ended += usize::from(matches!(
                self.states.get(key).map(|entry| &entry.kind),
                Some(Kind::Open(_) | Kind::Delegation(_) | Kind::Copy(_))
            ));
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
        ended
    }

    fn drop_waiters(&mut self, is_lost: impl Fn(&Waiter) -> bool) {
        let waits_lost = |(_, state): &(FileRef, &FileState)| state.waiters.iter().any(&is_lost);
        let files: Vec<FileRef> = self.files.table.iter().filter(waits_lost).map(|(key, _)| key).collect();
        for file in files {
            let clients = &mut self.clients;
            self.files[file].waiters.retain(|waiter| {
                let lost = is_lost(waiter);
                if lost {
                    clients[waiter.client].waiters -= 1;
                }
                !lost
            });
            self.settle(file);
        }
    }
}
