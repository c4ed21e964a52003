//! Status report: clients, sessions, opens, locks and delegations as plain values.

use vouch_nfs4::{ClientId, SessionId, Stateid};

use super::id::FileKey;
use super::limits::REPORT_ROWS_MAX;
use super::tables::State;
use crate::state::client::credential::Family;
use crate::state::client::record::{Dialect, Lease};
use crate::state::lock::range::Mode;
use crate::state::stateid::entry::Kind;
use crate::{ConnectionId, Principal};

/// Status of a client.
#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// Client id.
    pub id: ClientId,
    /// Client name.
    pub owner: Vec<u8>,
    /// Family.
    pub family: Family,
    /// Principal.
    pub principal: Principal,
    /// Whether the client is confirmed.
    pub confirmed: bool,
    /// Implementation name from EXCHANGE_ID.
    pub implementation: Option<String>,
    /// Whether the lease has expired.
    pub courtesy: bool,
    /// Milliseconds since the last renewal.
    pub silent_ms: u64,
    /// Sessions.
    pub sessions: usize,
    /// Latest known connection.
    pub connection: Option<ConnectionId>,
    /// Minor version.
    pub minor: u32,
    /// Opens.
    pub opens: usize,
    /// Locked byte ranges.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Whether callbacks reach the client.
    pub callbacks: bool,
}

/// Status of a session.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Session id.
    pub id: SessionId,
    /// Client.
    pub client: ClientId,
    /// Connections.
    pub connections: usize,
    /// Slots that the client may use.
    pub slots: u32,
    /// Requests in progress.
    pub busy: usize,
    /// Bytes of cached replies.
    pub cached_len: usize,
}

/// Status of an open.
#[derive(Clone, Debug)]
pub struct OpenStatus {
    /// Stateid.
    pub stateid: Stateid,
    /// Client.
    pub client: ClientId,
    /// File.
    pub file: FileKey,
    /// Access bits: 1 read, 2 write.
    pub access: u8,
    /// Denial bits.
    pub deny: u8,
}

/// Status of a locked range.
#[derive(Clone, Debug)]
pub struct LockStatus {
    /// Client.
    pub client: ClientId,
    /// File.
    pub file: FileKey,
    /// First byte.
    pub offset: u64,
    /// Length; all ones for the end of the file.
    pub length: u64,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
}

/// Status of a delegation.
#[derive(Clone, Debug)]
pub struct DelegationStatus {
    /// Stateid.
    pub stateid: Stateid,
    /// Client.
    pub client: ClientId,
    /// File.
    pub file: FileKey,
    /// Write delegation rather than read.
    pub write: bool,
    /// Whether the delegation was recalled.
    pub recalled: bool,
}

/// Status of all state. Lists end at a thousand rows; totals are complete.
#[derive(Clone, Debug, Default)]
pub struct StateStatus {
    /// Milliseconds until grace ends; 0 after it.
    pub grace_left_ms: u64,
    /// Clients that may still reclaim.
    pub grace_waiting: usize,
    /// Totals.
    pub totals: Totals,
    /// Clients.
    pub clients: Vec<ClientStatus>,
    /// Sessions.
    pub sessions: Vec<SessionStatus>,
    /// Opens.
    pub opens: Vec<OpenStatus>,
    /// Locks.
    pub locks: Vec<LockStatus>,
    /// Delegations.
    pub delegations: Vec<DelegationStatus>,
}

/// Counts of all state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Clients.
    pub clients: usize,
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: usize,
    /// Locked byte ranges.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Copies in progress or recently ended.
    pub copies: usize,
    /// Bytes of slots and cached replies.
    pub reply_cache_len: usize,
    /// Clients evicted so far.
    pub clients_displaced: u64,
    /// Clients refused so far for lack of room.
    pub clients_refused: u64,
}

impl<F: Clone> State<F> {
    /// Totals only. O(1).
    pub fn totals(&self) -> Totals {
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
        }
    }

    /// Milliseconds until grace ends; 0 after it.
    pub fn grace_left_ms(&self, now: u64) -> u64 {
        self.grace.until_ms().map_or(0, |until| until.saturating_sub(now))
    }

    /// Status of all state. O(n) in all state: for occasional use by an administrator.
    pub fn status(&self, now: u64) -> StateStatus {
        let mut status = StateStatus {
            grace_left_ms: self.grace_left_ms(now),
            grace_waiting: self.grace.waiting(),
            totals: self.totals(),
            ..StateStatus::default()
        };
        status.clients = self.clients.iter().take(REPORT_ROWS_MAX).map(|(key, _)| self.client_status(key, now)).collect();
        status.sessions = (self.sessions.iter().take(REPORT_ROWS_MAX))
            .map(|(_, session)| SessionStatus {
                id: session.id,
                client: self.clients[session.client].id,
                connections: session.connections.len(),
                slots: session.slots.highest().0 + 1,
                busy: session.slots.busy(),
                cached_len: session.slots.cached_len(),
            })
            .collect();
        for (key, entry) in self.states.iter() {
            let Some(client) = self.clients.get(entry.client).map(|client| client.id) else { continue };
            let Some(file) = self.files.table.get(entry.file).map(|file| file.key) else { continue };
            let stateid = entry.stateid(self.boot, key);
            match &entry.kind {
                Kind::Open(open) if status.opens.len() < REPORT_ROWS_MAX => {
                    status.opens.push(OpenStatus { stateid, client, file, access: open.access, deny: open.deny });
                }
                Kind::Delegation(delegation) if status.delegations.len() < REPORT_ROWS_MAX => {
                    let recalled = delegation.recalled_ms.is_some();
                    status.delegations.push(DelegationStatus { stateid, client, file, write: delegation.write, recalled });
                }
                Kind::Lock(lock) => {
                    let room = REPORT_ROWS_MAX - status.locks.len();
                    status.locks.extend(lock.ranges.iter().take(room).map(|(range, mode)| LockStatus {
                        client,
                        file,
                        offset: range.offset(),
                        length: range.length(),
                        exclusive: mode == Mode::Exclusive,
                    }));
                }
                _ => {}
            }
        }
        status
    }

    fn client_status(&self, key: super::ClientKey, now: u64) -> ClientStatus {
        let client = &self.clients[key];
        let (implementation, sessions) = match &client.dialect {
            Dialect::V40(_) => (None, &[][..]),
            Dialect::V41(v41) => (v41.implementation.as_deref().map(str::to_owned), v41.sessions.as_slice()),
        };
        let bound = sessions.iter().rev().find_map(|&session| self.sessions[session].connections.last());
        // In 4.1 the minor version may change with each COMPOUND; the newest session is the best
        // guess.
        let minor = match &client.dialect {
            Dialect::V40(_) => 0,
            Dialect::V41(_) => sessions.last().map_or(1, |&session| self.sessions[session].back.minor),
        };
        ClientStatus {
            id: client.id,
            owner: client.owner.to_vec(),
            family: client.family(),
            principal: client.principal.clone(),
            confirmed: client.confirmed,
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
