//! A source over its quota evicts its own records; a full table evicts those of the largest source.

use std::collections::HashMap;
use std::net::IpAddr;

use vouch_nfs4::Status;

use super::{Resource, Source, SourceKey, within_share};
use crate::state::client::record::{Client, Lease};
use crate::state::effect::ClientEnd;
use crate::state::effect::{Loss, StateEffect};
use crate::state::id::ClientKey;
use crate::state::limits::{EVICTIONS_PER_SCAN_MAX, UNCONFIRMED_MIN, UNCONFIRMED_SHARE};
use crate::state::slab::Ended;
use crate::state::tables::State;

/// Cheapest loss first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Evictable {
    Unconfirmed,
    Idle,
    Expired,
}

#[derive(Clone, Copy)]
enum Victims {
    Own(Option<SourceKey>),
    Unconfirmed,
    Any,
}

impl Client {
    fn evictable(&self) -> Option<Evictable> {
        match self.lease {
            _ if self.running > 0 => None,
            _ if !self.confirmed => Some(Evictable::Unconfirmed),
            _ if !self.has_state() => Some(Evictable::Idle),
            Lease::Courtesy { .. } => Some(Evictable::Expired),
            Lease::Active => None,
        }
    }
}

impl<F: Clone> State<F> {
    /// DELAY while the server is drained, or if the table is full or the source is over its quota, and
    /// nothing can be evicted.
    pub(in crate::state) fn make_room_for_client(
        &mut self,
        source: &Source,
        owner: &[u8],
        address: IpAddr,
        now: u64,
    ) -> Result<(), Status> {
        if self.is_draining {
            return Err(Status::DELAY);
        }
        let clients_max = self.config.limits.clients_max;
        let own = self.sources.key_of(source);
        // Anybody can introduce any number of names.
        let unconfirmed_max = (clients_max / UNCONFIRMED_SHARE).max(UNCONFIRMED_MIN);
        let mut has_room = self.unconfirmed_count < unconfirmed_max
            || self.evict_clients(own, Victims::Unconfirmed, now);
        let all = self.clients.len();
        if has_room && !within_share(self.sources.clients_of(source), 1, all, clients_max) {
            let victims = if all < clients_max { Victims::Own(own) } else { Victims::Any };
            has_room = self.evict_clients(own, victims, now);
        }
        if has_room {
            return Ok(());
        }
        self.clients_refused += 1;
        self.effects.push_back(StateEffect::ClientEnded {
            owner: owner.into(),
            address,
            why: ClientEnd::TableFull,
        });
        Err(Status::DELAY)
    }

    fn evict(&mut self, key: ClientKey) {
        self.clients_displaced += 1;
        let client = &self.clients[key];
        let (owner, address) = (client.owner.clone(), client.address);
        self.effects.push_back(StateEffect::ClientEnded {
            owner,
            address,
            why: ClientEnd::Evicted,
        });
        self.end(key, Ended::Expired, client.confirmed, Loss::Expired);
    }

    /// Least recently used records of the cheapest kind, of the source that has most of them. O(n)
    /// in clients, so one scan evicts several.
    fn evict_clients(&mut self, requester: Option<SourceKey>, victims: Victims, now: u64) -> bool {
        if !self.sources.may_scan(requester, now) {
            return false;
        }
        let candidate = |client: &Client| {
            let kind = client.evictable()?;
            let is_allowed = match victims {
                Victims::Own(source) => Some(client.source_key) == source,
                Victims::Unconfirmed => kind == Evictable::Unconfirmed,
                Victims::Any => true,
            };
            is_allowed.then_some(kind)
        };
        let mut counts: HashMap<(Evictable, SourceKey), usize> = HashMap::new();
        for (_, client) in self.clients.iter() {
            if let Some(kind) = candidate(client) {
                *counts.entry((kind, client.source_key)).or_default() += 1;
            }
        }
        let Some(kind) = counts.keys().map(|&(kind, _)| kind).min() else { return false };
        let of_kind = counts.iter().filter(|((other, _), _)| *other == kind);
        // Among equals, the asking source is the victim.
        let largest = of_kind
            .max_by_key(|((_, source), count)| (**count, Some(*source) == requester, *source));
        let Some((&(_, source), &count)) = largest else { return false };
        let records = self
            .clients
            .iter()
            .filter(|(_, client)| client.source_key == source && candidate(client) == Some(kind));
        let mut oldest: Vec<(u64, ClientKey)> =
            records.map(|(key, client)| (client.renewed_ms, key)).collect();
        oldest.sort_unstable();
        let evicted_max = if kind == Evictable::Expired { 1 } else { 1 + count / EVICTED_PART };
        for &(_, key) in oldest.iter().take(evicted_max) {
            self.evict(key);
        }
        true
    }

    /// True if the source may use more of a resource of which all sources use `all` of `max`. Ends
    /// clients with expired leases: of the same source, then of larger ones.
    pub(in crate::state) fn make_room_for_state(
        &mut self,
        key: ClientKey,
        resource: Resource,
        max: usize,
        all: impl Fn(&Self) -> usize,
    ) -> bool {
        let Some(client) = self.clients.get(key) else { return false };
        let source = client.source_key;
        let usage = |state: &Self, source| state.sources.usage(source).of(resource);
        let has_room = |state: &Self| within_share(usage(state, source), 1, all(state), max);
        if has_room(self) {
            return true;
        }
        if !self.sources.may_scan(Some(source), self.latest_ms) {
            return false;
        }
        let own = usage(self, source);
        let records = self.clients.iter().filter(|&(other, client)| {
            other != key && client.evictable() == Some(Evictable::Expired)
        });
        let mut expired: Vec<(bool, std::cmp::Reverse<usize>, u64, ClientKey)> = records
            .filter(|(_, client)| {
                client.source_key == source || usage(self, client.source_key) > own
            })
            .map(|(key, client)| {
                let of = client.source_key;
                (of != source, std::cmp::Reverse(usage(self, of)), client.renewed_ms, key)
            })
            .collect();
        expired.sort_unstable();
        for (.., victim) in expired.into_iter().take(EVICTIONS_PER_SCAN_MAX) {
            self.evict(victim);
            if has_room(self) {
                return true;
            }
        }
        false
    }
}

/// The part of the found records that one scan evicts.
const EVICTED_PART: usize = 256;
