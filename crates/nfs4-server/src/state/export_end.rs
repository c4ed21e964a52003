//! The end of exports: what was granted by one that is gone, that shows other files now or is not
//! for the client any more, can't be used or given back, and would be in the way of others
//! for good. Who decides what that is may have to ask a disk, so it is done outside of the state's
//! lock, on a list; and in parts, so that calls get through.

use std::net::SocketAddr;

use super::effect::Loss;
use super::id::{ClientKey, FileKey, StateKey};
use super::slab::Ended;
use super::tables::State;
use crate::state::stateid::entry::{Kind, Terms};
use crate::{ConnectionId, ExportId};

/// Something that a client holds of an export: an open with its locks, a delegation, or a copy.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    key: StateKey,
    /// Who holds it.
    pub client: ClientKey,
    /// The file, by the export that it was granted by.
    pub file: FileKey,
    /// On what terms.
    pub terms: Terms,
}

impl Holding {
    /// By which export it was granted.
    pub fn export(&self) -> ExportId {
        self.file.export
    }
}

/// Places that are looked through at once.
pub const HOLDINGS_AT_ONCE: usize = 1024;

impl<F: Clone> State<F> {
    /// What is held in [`HOLDINGS_AT_ONCE`] places from this one on; none where there are no places
    /// any more. What comes into a place later is not told.
    pub fn holdings(&self, from: usize) -> Option<Vec<Holding>> {
        let part = self.states.part(from, HOLDINGS_AT_ONCE)?;
        Some(
            part.filter_map(|(key, entry)| Some(Holding { key, client: entry.client, file: *entry.held()?, terms: entry.terms })).collect(),
        )
    }

    /// Where a client calls from; where it was last known to be, with port 0, if it has no
    /// connection. O(n) in its connections.
    pub fn peers_of(&self, key: ClientKey, peer: impl Fn(ConnectionId) -> Option<SocketAddr>) -> Vec<SocketAddr> {
        let client = &self.clients[key];
        let sessions = client.v41().into_iter().flat_map(|v41| &v41.sessions);
        let bound = sessions.flat_map(|&session| self.sessions[session].connections.iter().map(|bound| bound.connection));
        let peers: Vec<SocketAddr> = bound.chain(client.connection).filter_map(peer).collect();
        if peers.is_empty() { vec![SocketAddr::new(client.address, 0)] } else { peers }
    }

    /// The clients that hold these wait no more for locks of the same files by the same exports. To
    /// be done for all before any of them ends, so that what comes free goes to others.
    pub fn end_waits(&mut self, lost: &[Holding], now: u64) {
        self.latest_ms = now;
        for held in lost {
            let Some(file) = self.states.get(held.key).map(|entry| entry.file) else { continue };
            let clients = &mut self.clients;
            self.files[file].waiters.retain(|waiter| {
                let lost = waiter.is_of(held.client, held.export());
                if lost {
                    clients[waiter.client].waiters -= 1;
                }
                !lost
            });
        }
    }

    /// Ends these, unless they have gone or were granted anew on other terms since; how many. The
    /// clients stay.
    pub fn end_holdings(&mut self, lost: &[Holding], now: u64) -> usize {
        self.latest_ms = now;
        let mut ended = 0;
        for held in lost {
            let key = held.key;
            let Some(entry) = self.states.get(key).filter(|entry| entry.terms == held.terms) else { continue };
            match &entry.kind {
                Kind::Open(open) => {
                    let owner = open.owner;
                    self.drop_open(key, Ended::Freed, Some(Loss::Revoked));
                    self.settle_owner(owner);
                }
                Kind::Delegation(_) => self.revoke_for(key, Loss::Revoked),
                Kind::Copy(_) => self.drop_copy(key, Ended::Freed),
                // It was closed or revoked since.
                Kind::Lock(_) | Kind::Revoked | Kind::Closed(_) => continue,
            }
            ended += 1;
        }
        ended
    }
}
