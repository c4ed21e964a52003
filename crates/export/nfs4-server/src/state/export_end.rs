//! Ends state of a removed or changed export. The decision may need a disk: callers list the
//! holdings, decide outside of the lock, and end state in parts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::client::record::Lease;
use super::effect::{Loss, StateEffect};
use super::id::{ClientKey, FileKey, StateKey};
use super::slab::Ended;
use super::tables::State;
use crate::state::effect::ClientEnd;
use crate::state::stateid::entry::{Kind, Terms};
use crate::{ConnectionId, ExportId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    key: StateKey,
    pub client: ClientKey,
    pub file: FileKey,
    pub terms: Terms,
}

impl Holding {
    pub(crate) fn export(&self) -> ExportId {
        self.file.export
    }
}

pub(crate) const HOLDINGS_AT_ONCE: usize = 1024;

impl<F: Clone> State<F> {
    pub(crate) fn holdings(&self, from: usize) -> Option<Vec<Holding>> {
        let part = self.states.part(from, HOLDINGS_AT_ONCE)?;
        Some(
            part.filter_map(|(key, entry)| {
                Some(Holding {
                    key,
                    client: entry.client,
                    file: *entry.held()?,
                    terms: entry.terms,
                })
            })
            .collect(),
        )
    }

    pub(crate) fn has_expired_holders(&self) -> bool {
        self.clients.iter().any(|(key, client)| self.is_courtesy(key) && client.has_state())
    }

    /// As [`Self::holdings`], of clients whose leases have ended.
    pub(crate) fn expired_holdings(&self, from: usize) -> Option<Vec<Holding>> {
        let mut part = self.holdings(from)?;
        part.retain(|held| self.is_courtesy(held.client));
        Some(part)
    }

    /// Of those clients that have not come back.
    pub(crate) fn end_expired_holdings(&mut self, lost: &[Holding], now: u64) -> usize {
        let is_away = |held: &&Holding| {
            self.clients.get(held.client).is_some_and(|client| client.lease != Lease::Active)
        };
        let lost: Vec<Holding> = lost.iter().filter(is_away).copied().collect();
        self.end_waits(&lost, now);
        self.end_holdings(&lost, now, Loss::Expired, |_, silent_ms| ClientEnd::Expired {
            silent_ms,
        })
    }

    pub(crate) fn peers_of(
        &self,
        key: ClientKey,
        peer: impl Fn(ConnectionId) -> Option<SocketAddr>,
    ) -> Vec<SocketAddr> {
        let client = &self.clients[key];
        let sessions = client.v41().into_iter().flat_map(|v41| &v41.sessions);
        let bound = sessions.flat_map(|&session| {
            self.sessions[session].connections.iter().map(|bound| bound.connection)
        });
        let peers: Vec<SocketAddr> = bound.chain(client.connection).filter_map(peer).collect();
        if peers.is_empty() { vec![SocketAddr::new(client.address, 0)] } else { peers }
    }

    /// Cancels lock waits of these clients on these files. Call it first, so that freed locks go to
    /// other clients.
    pub(crate) fn end_waits(&mut self, lost: &[Holding], now: u64) {
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

    /// `why`: from the number of a client's ended states, and the time since its last call.
    pub(crate) fn end_holdings(
        &mut self,
        lost: &[Holding],
        now: u64,
        loss: Loss,
        why: impl Fn(usize, u64) -> ClientEnd,
    ) -> usize {
        let ended_as = if loss == Loss::Expired { Ended::Expired } else { Ended::Revoked };
        self.latest_ms = now;
        let mut ended: BTreeMap<ClientKey, usize> = BTreeMap::new();
        for held in lost {
            let key = held.key;
            let Some(entry) = self.states.get(key).filter(|entry| entry.terms == held.terms) else {
                continue;
            };
            match &entry.kind {
                Kind::Open(open) => {
                    let owner = open.owner;
                    self.drop_open(key, ended_as, Some(loss));
                    self.remove_owner_if_idle(owner);
                }
                Kind::Delegation(_) => self.revoke_for(key, loss),
                Kind::Copy(_) => self.drop_copy(key, Ended::Freed),
                Kind::Lock(_) | Kind::Revoked | Kind::Closed(_) => continue,
            }
            *ended.entry(held.client).or_default() += 1;
        }
        for (&key, &ended) in &ended {
            let Some(client) = self.clients.get(key) else { continue };
            let (owner, address) = (client.owner.clone(), client.address);
            let why = why(ended, now.saturating_sub(client.renewed_ms));
            self.effects.push_back(StateEffect::ClientEnded { owner, address, why });
        }
        ended.values().sum()
    }
}
