//! Leases, courtesy to silent clients, and the end of clients (RFC 8881, sections 8.3 and 8.4).

use super::timers::Timer;

use crate::state::client::credential::Family;
use crate::state::client::record::{Dialect, Lease};
use crate::state::effect::{Loss, StateEffect};
use crate::state::id::{ClientKey, StateKey};
use crate::state::limits::{COURTESY_MS, TIMERS_AT_ONCE};
use crate::state::slab::Ended;
use crate::state::stateid::entry::OwnerKind;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Time has passed. Returns when to call again at the latest; if that is not later than now,
    /// there is more to do, after others had their turn. O(log n) for each timer that is due.
    pub fn tick(&mut self, now: u64) -> u64 {
        self.latest_ms = self.latest_ms.max(now);
        for _ in 0..TIMERS_AT_ONCE {
            let Some(timer) = self.timers.pop(now) else { break };
            match timer {
                Timer::Lease(client) => self.lease_due(client, now),
                Timer::Recall(delegation) => self.recall_due(delegation, now),
                Timer::Retry(callback) => self.retry_due(callback),
                Timer::Waiter(file) => self.reservation_due(file, now),
                Timer::Copy(copy) => self.copy_due(copy),
                Timer::Grace => {
                    if self.grace.is_over(now) {
                        self.end_grace();
                    }
                }
            }
        }
        self.timers.next_due().unwrap_or(now + self.config.lease_ms)
    }

    pub(in crate::state) fn watch_lease(&mut self, key: ClientKey, now: u64) {
        self.timers.set(now + self.config.lease_ms, Timer::Lease(key));
    }

    fn lease_due(&mut self, key: ClientKey, now: u64) {
        let lease_ms = self.config.lease_ms;
        let Some(client) = self.clients.get_mut(key) else { return };
        if client.running > 0 {
            client.renewed_ms = now;
        }
        let due = client.renewed_ms + lease_ms;
        if now < due {
            self.timers.set(due, Timer::Lease(key));
            self.forget_idle(key);
        } else if !client.confirmed || !client.has_state() {
            self.expire(key);
        } else {
            self.timers.set(now + lease_ms, Timer::Lease(key));
            match client.lease {
                // A server may keep what is in nobody's way (RFC 8881, section 8.4.2.4).
                Lease::Active => {
                    client.lease = Lease::Courtesy { since_ms: now };
                    self.end_courtesy_in_the_way(key);
                }
                Lease::Courtesy { since_ms } if now >= since_ms + COURTESY_MS => self.expire(key),
                Lease::Courtesy { .. } => {}
            }
        }
    }

    /// A client of 4.0 never says that it has nothing to reclaim, so that grace would wait for it
    /// until its time is over (RFC 7530, section 9.6.2). One that holds nothing has no record:
    /// its next open writes one. Clients of 4.1 say it, and keep theirs.
    fn forget_idle(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        if client.family() == Family::V40 && client.recorded && !client.has_state() {
            client.recorded = false;
            let key = crate::state::RecoveryRecord::key(Family::V40, &client.owner);
            self.effects.push_back(StateEffect::Forget { key });
        }
    }

    /// A client whose lease runs out while a delegation of its is recalled, or a lock of its is
    /// waited for, is in somebody's way already.
    fn end_courtesy_in_the_way(&mut self, key: ClientKey) {
        // Of delegations only those that are recalled: the rest is in nobody's way, and the client may come
        // back.
        let recalled: Vec<StateKey> = self.clients[key].delegations.iter().copied().filter(|&state| self.is_recalled(state)).collect();
        recalled.into_iter().for_each(|state| self.revoke(state));
        let client = &self.clients[key];
        let awaited = client.lock_owners.values().any(|&owner| {
            let mut files = self.owners[owner].states.keys();
            files.any(|&(file, _)| !self.files[file].waiters.is_empty())
        });
        if awaited {
            self.expire(key);
        }
    }

    /// Whether the client's lease has run out, so that its state must not stand in anybody's way.
    pub(in crate::state) fn is_courtesy(&self, key: ClientKey) -> bool {
        matches!(self.clients[key].lease, Lease::Courtesy { .. })
    }

    /// A client has restarted: all that it held in its life before goes.
    pub(in crate::state) fn replace(&mut self, key: ClientKey) {
        // RFC 7530, section 16.34.5: a stateid of the life before is told as expired; in 4.1 it is none of
        // the new client's.
        let ended = if self.clients.get(key).is_some_and(|client| client.family() == Family::V40) { Ended::Expired } else { Ended::Freed };
        self.end(key, ended, false, Loss::Restarted);
    }

    /// The client ends, with all that it holds, and may not reclaim it. RFC 8881, section 8.4.3:
    /// the record that says so is durable before anybody is answered whom this client's state
    /// would have kept out, or after a restart both would have it.
    pub(in crate::state) fn expire(&mut self, key: ClientKey) {
        self.expire_for(key, Loss::Expired);
    }

    fn expire_for(&mut self, key: ClientKey, why: Loss) {
        let forget = self.clients.get(key).is_some_and(|client| client.confirmed);
        self.end(key, Ended::Expired, forget, why);
    }

    fn end(&mut self, key: ClientKey, ended: Ended, forget: bool, why: Loss) {
        let Some(client) = self.clients.get(key) else { return };
        let (had_state, recorded) = (client.has_state(), client.recorded);
        if forget && recorded {
            if had_state {
                self.record(key, true);
            } else {
                let record = crate::state::RecoveryRecord::key(self.clients[key].family(), &self.clients[key].owner);
                self.effects.push_back(StateEffect::Forget { key: record });
            }
        }
        // It waits for nothing any more, before what it holds is freed and those that wait are told.
        self.drop_waiters_of(key);
        let sessions = match &self.clients[key].dialect {
            Dialect::V41(v41) => v41.sessions.clone(),
            Dialect::V40(_) => Vec::new(),
        };
        sessions.into_iter().for_each(|session| self.remove_session(session));
        let client = &mut self.clients[key];
        let copies = std::mem::take(&mut client.copies);
        let delegations: Vec<StateKey> = client.delegations.drain().chain(client.revoked.drain()).collect();
        let owners: Vec<_> = client.lock_owners.values().chain(client.open_owners.values()).copied().collect();
        let queue = std::mem::take(&mut client.callback_queue);
        queue.into_iter().for_each(|callback| self.forget_callback(callback));
        // Lock owners first: an open goes only without locks.
        let locks = owners.iter().filter(|&&owner| self.owners[owner].kind == OwnerKind::Lock);
        let locks: Vec<StateKey> = locks.flat_map(|&owner| self.owners[owner].states.values().copied()).collect();
        self.drop_locks(locks, ended);
        for owner in owners {
            let opens: Vec<StateKey> = self.owners[owner].states.values().copied().collect();
            opens.into_iter().for_each(|open| self.drop_open(open, ended, Some(why)));
            self.drop_owner(owner);
        }
        for state in delegations {
            self.drop_delegation(state, ended, Some(why));
        }
        for state in copies {
            self.drop_copy(state, ended);
        }
        let client = self.clients.remove(key, ended).expect("it was there at the start");
        self.client_ids.remove(&client.id);
        if !client.confirmed {
            self.unconfirmed_count -= 1;
        }
        self.sources.remove_client(client.source_key);
        let family = client.family();
        let named = self.names(family).entry(client.owner.clone()).or_default();
        named.confirmed = named.confirmed.filter(|&other| other != key);
        named.unconfirmed = named.unconfirmed.filter(|&other| other != key);
        if named.confirmed.is_none() && named.unconfirmed.is_none() {
            self.names(family).remove(&client.owner);
        }
    }

    /// Ends a client by the administrator's wish. False if there is none with this id.
    pub fn revoke_client(&mut self, id: vouch_nfs4::ClientId) -> bool {
        match self.client_by_id(id) {
            Some(key) => {
                self.expire_for(key, Loss::Revoked);
                true
            }
            None => false,
        }
    }
}
