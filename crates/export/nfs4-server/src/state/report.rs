use vouch_nfs4::ClientId;

use super::limits::REPORT_ROWS_MAX;
use super::tables::State;
use crate::ConnectionId;
use crate::state::client::record::{Lease, VersionState};

#[derive(Clone, Debug)]
pub(crate) struct ClientStatus {
    pub id: ClientId,
    pub owner: Vec<u8>,
    pub implementation: Option<String>,
    pub courtesy: bool,
    pub silent_ms: u64,
    pub sessions: usize,
    pub connection: Option<ConnectionId>,
    pub minor: u32,
    pub opens: usize,
    pub locks: usize,
    pub delegations: usize,
    pub callbacks: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct StateStatus {
    pub totals: Totals,
    pub clients: Vec<ClientStatus>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub clients: usize,
    pub sessions: usize,
    pub opens: usize,
    pub locks: usize,
    pub delegations: usize,
    pub copies: usize,
    pub reply_cache_len: usize,
    pub clients_displaced: u64,
    pub clients_refused: u64,
    pub name_conflicts: u64,
    pub delegations_revoked: u64,
}

impl<F: Clone> State<F> {
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            clients: self.clients.len(),
            sessions: self.sessions.len(),
            opens: self.open_count,
            locks: self.lock_count - self.locked_count,
            delegations: self.delegation_count,
            copies: self.copy_count,
            reply_cache_len: self.reply_cache_len,
            clients_displaced: self.clients_displaced,
            clients_refused: self.clients_refused,
            name_conflicts: self.name_conflicts,
            delegations_revoked: self.delegations_revoked,
        }
    }

    pub(crate) fn grace_left_ms(&self, now: u64) -> u64 {
        self.grace.until_ms().map_or(0, |until| until.saturating_sub(now))
    }

    /// O(n) in clients.
    pub(crate) fn status(&self, now: u64) -> StateStatus {
        let clients = self
            .clients
            .iter()
            .take(REPORT_ROWS_MAX)
            .map(|(key, _)| self.client_status(key, now))
            .collect();
        StateStatus { totals: self.totals(), clients }
    }

    fn client_status(&self, key: super::ClientKey, now: u64) -> ClientStatus {
        let client = &self.clients[key];
        let (implementation, sessions) = match &client.version {
            VersionState::V40(_) => (None, &[][..]),
            VersionState::V41(v41) => {
                (v41.implementation.as_deref().map(str::to_owned), v41.sessions.as_slice())
            }
        };
        let bound =
            sessions.iter().rev().find_map(|&session| self.sessions[session].connections.last());
        let minor = match &client.version {
            VersionState::V40(_) => 0,
            VersionState::V41(_) => {
                sessions.last().map_or(1, |&session| self.sessions[session].back.minor)
            }
        };
        ClientStatus {
            id: client.id,
            owner: client.owner.to_vec(),
            implementation,
            courtesy: client.lease != Lease::Active,
            silent_ms: now.saturating_sub(client.renewed_ms),
            sessions: sessions.len(),
            connection: bound.map_or(client.connection, |bound| Some(bound.connection)),
            minor,
            opens: client.opens,
            locks: client.locks,
            delegations: client.delegations.len(),
            callbacks: self.callbacks_reach(key),
        }
    }
}
