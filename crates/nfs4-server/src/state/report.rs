//! What there is to tell: clients, sessions, opens, locks, delegations. Plain values.

use vouch_nfs4::{ClientId, SessionId, Stateid};

use super::id::FileKey;
use super::limits::REPORT_ROWS_MAX;
use super::tables::State;
use crate::state::client::credential::Family;
use crate::state::client::record::{Dialect, Lease};
use crate::state::lock::range::Mode;
use crate::state::stateid::entry::Kind;
use crate::{ConnectionId, Principal};

/// One client.
#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// Its id.
    pub id: ClientId,
    /// Its own name for itself.
    pub owner: Vec<u8>,
    /// Which world it is of.
    pub family: Family,
    /// Who introduced it.
    pub principal: Principal,
    /// Whether it is confirmed.
    pub confirmed: bool,
    /// Implementation that it named.
    pub implementation: Option<String>,
    /// Whether its lease has run out.
    pub courtesy: bool,
    /// Milliseconds since it was last heard of.
    pub silent_ms: u64,
    /// Sessions.
    pub sessions: usize,
    /// The last connection of its that is known of.
    pub connection: Option<ConnectionId>,
    /// Minor version that it speaks.
    pub minor: u32,
    /// Opens.
    pub opens: usize,
    /// Byte ranges locked.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Whether callbacks reach it.
    pub callbacks: bool,
}

/// One session.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its id.
    pub id: SessionId,
    /// Its client.
    pub client: ClientId,
    /// Connections.
    pub connections: usize,
    /// Slots that the client may use.
    pub slots: u32,
    /// Requests under way.
    pub busy: usize,
    /// Bytes of replies kept.
    pub cached_len: usize,
}

/// One open.
#[derive(Clone, Debug)]
pub struct OpenStatus {
    /// Its stateid.
    pub stateid: Stateid,
    /// Its client.
    pub client: ClientId,
    /// The file.
    pub file: FileKey,
    /// Bits of access: 1 read, 2 write.
    pub access: u8,
    /// Bits of denial.
    pub deny: u8,
}

/// One locked range.
#[derive(Clone, Debug)]
pub struct LockStatus {
    /// Its client.
    pub client: ClientId,
    /// The file.
    pub file: FileKey,
    /// First byte.
    pub offset: u64,
    /// How many; all ones is up to the end.
    pub length: u64,
    /// Whether nobody else may lock.
    pub exclusive: bool,
}

/// One delegation.
#[derive(Clone, Debug)]
pub struct DelegationStatus {
    /// Its stateid.
    pub stateid: Stateid,
    /// Its client.
    pub client: ClientId,
    /// The file.
    pub file: FileKey,
    /// To write, or only to read.
    pub write: bool,
    /// Whether it was recalled.
    pub recalled: bool,
}

/// All of it, each list cut at a thousand rows; the totals are whole.
#[derive(Clone, Debug, Default)]
pub struct StateStatus {
    /// Milliseconds until the grace period ends; 0 if it has.
    pub grace_left_ms: u64,
    /// Clients that may still reclaim.
    pub grace_waiting: usize,
    /// How many clients, sessions, opens, locked ranges, delegations and copies there are.
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

/// How many there are.
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
    /// Copies under way or just ended.
    pub copies: usize,
    /// Bytes of slots and of replies kept for retries.
    pub reply_cache_len: usize,
    /// Clients so far that had to make room for others.
    pub clients_displaced: u64,
    /// Introductions so far for which there was no room.
    pub clients_refused: u64,
}

impl<F: Clone> State<F> {
    /// The totals alone. O(1).
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

    /// Milliseconds until the grace period ends; 0 if it has.
    pub fn grace_left_ms(&self, now: u64) -> u64 {
        self.grace.until_ms().map_or(0, |until| until.saturating_sub(now))
    }

    /// All that there is to tell. O(n) in all state: for a person that asks now and then.
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
        // In 4.1 any compound may speak another minor version; the last session's is the best guess.
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
