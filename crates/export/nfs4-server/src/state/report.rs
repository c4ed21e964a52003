use std::net::IpAddr;

use vouch_nfs4::ClientId;

use super::export_end::HOLDINGS_AT_ONCE;
use super::id::FileKey;
use super::limits::{RANGES_SHOWN_MAX, REPORT_ROWS_MAX};
use super::lock::range::{Mode, Range};
use super::open::share::{READ, WRITE};
use super::stateid::entry::{Entry, Kind};
use super::tables::State;
use crate::access::network::Network;
use crate::server::status::{AwaitedReport, ClientReport, StatusReport};
use crate::state::client::credential::Family;
use crate::state::client::record::{Lease, VersionState};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub clients: usize,
    pub sessions: usize,
    pub opens: usize,
    pub locks: usize,
    /// Of files and directories.
    pub delegations: usize,
    pub directory_delegations: usize,
    pub copies: usize,
    pub reply_cache_len: usize,
    pub clients_displaced: u64,
    pub clients_refused: u64,
    pub name_conflicts: u64,
    pub delegations_revoked: u64,
    /// Clients that grace waits for.
    pub awaited: usize,
}

/// A state that a client holds on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldKind {
    Open { reads: bool, writes: bool, denies_reads: bool, denies_writes: bool },
    Lock { ranges: Vec<LockedRange> },
    Delegation { writes: bool, is_recalled: bool },
    DirectoryDelegation { is_recalled: bool },
    Copy,
}

/// `length`: `u64::MAX` reaches the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedRange {
    pub offset: u64,
    pub length: u64,
    pub is_exclusive: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct StateRow {
    pub client: ClientId,
    pub file: FileKey,
    pub kind: HeldKind,
}

impl<F: Clone> State<F> {
    /// A part of all states. `None` behind the last.
    pub(crate) fn rows(&self, from: usize) -> Option<Vec<StateRow>> {
        let part = self.states.part(from, HOLDINGS_AT_ONCE)?;
        Some(part.filter_map(|(_, entry)| self.row(entry)).collect())
    }

    fn row(&self, entry: &Entry<F>) -> Option<StateRow> {
        let (kind, file) = match &entry.kind {
            Kind::Open(open) => {
                let has = |bits: u8, bit| bits & bit != 0;
                let kind = HeldKind::Open {
                    reads: has(open.access, READ),
                    writes: has(open.access, WRITE),
                    denies_reads: has(open.deny, READ),
                    denies_writes: has(open.deny, WRITE),
                };
                (kind, open.key)
            }
            Kind::Lock(lock) if lock.ranges.is_empty() => return None,
            Kind::Lock(lock) => {
                let range = |(range, mode): (Range, Mode)| LockedRange {
                    offset: range.offset(),
                    length: range.length(),
                    is_exclusive: mode == Mode::Exclusive,
                };
                let ranges = lock.ranges.iter().take(RANGES_SHOWN_MAX).map(range).collect();
                (HeldKind::Lock { ranges }, *self.states.get(lock.open)?.held()?)
            }
            Kind::Delegation(delegation) => {
                let is_recalled = delegation.recalled_ms.is_some();
                let kind = match delegation.is_directory {
                    true => HeldKind::DirectoryDelegation { is_recalled },
                    false => HeldKind::Delegation { writes: delegation.write, is_recalled },
                };
                (kind, delegation.key)
            }
            Kind::Copy(copy) => (HeldKind::Copy, *copy.file()),
            Kind::Revoked | Kind::Closed(_) => return None,
        };
        Some(StateRow { client: self.clients[entry.client].id, file, kind })
    }

    pub(crate) fn clients_at(&self, address: IpAddr) -> Vec<u64> {
        let here = self.clients.iter().filter(|(_, client)| client.address == address);
        here.map(|(_, client)| client.id.0).collect()
    }

    pub(crate) fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining;
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            clients: self.clients.len(),
            sessions: self.sessions.len(),
            opens: self.open_count,
            locks: self.lock_count - self.locked_count,
            delegations: self.delegation_count,
            directory_delegations: self.directory_delegation_count,
            copies: self.copy_count,
            reply_cache_len: self.reply_cache_len,
            clients_displaced: self.clients_displaced,
            clients_refused: self.clients_refused,
            name_conflicts: self.name_conflicts,
            delegations_revoked: self.delegations_revoked,
            awaited: self.grace.awaited_count(),
        }
    }

    pub(crate) fn grace_left_ms(&self, now: u64) -> u64 {
        self.grace.until_ms().map_or(0, |until| until.saturating_sub(now))
    }

    /// Without addresses of connections and recent errors. O(n) in clients.
    pub(crate) fn status(&self, now: u64) -> StatusReport {
        let clients = self.clients.iter().take(REPORT_ROWS_MAX);
        let awaited = self.grace.awaited().take(REPORT_ROWS_MAX);
        StatusReport {
            grace_left_ms: self.grace_left_ms(now),
            awaited: awaited
                .map(|(family, owner, from)| self.awaited(family, owner, from))
                .collect(),
            clients: clients.map(|(key, _)| self.client_report(key, now)).collect(),
            copies: self.copy_count,
            recent_errors: Vec::new(),
        }
    }

    fn awaited(&self, family: Family, owner: &[u8], from: Option<Network>) -> AwaitedReport {
        let names = match family {
            Family::V40 => &self.names_40,
            Family::V41 => &self.names_41,
        };
        let named = names.get(owner).and_then(|named| named.confirmed);
        AwaitedReport {
            owner: owner.escape_ascii().to_string(),
            address: from.map(|from| from.to_string()),
            is_v40: family == Family::V40,
            is_back: named.is_some_and(|key| self.clients[key].may_reclaim),
        }
    }

    fn client_report(&self, key: super::ClientKey, now: u64) -> ClientReport {
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
        ClientReport {
            id: client.id.0,
            owner: client.owner.escape_ascii().to_string(),
            peer: None,
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
