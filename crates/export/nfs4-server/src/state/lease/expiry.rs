//! RFC 8881 §8.3 and 8.4.

use super::timers::Timer;

use crate::state::client::credential::Family;
use crate::state::client::record::{Lease, VersionState};
use crate::state::effect::ClientEnd;
use crate::state::effect::{Loss, StateEffect};
use crate::state::id::{ClientKey, StateKey};
use crate::state::limits::{COURTESY_MS, QUICK_RESTART_MS, TIMERS_AT_ONCE};
use crate::state::slab::Ended;
use crate::state::stateid::entry::OwnerKind;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    pub(crate) fn tick(&mut self, now: u64) -> u64 {
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
            if vouch_vfs::mutant("state-of-expired-client-lives") {
                return;
            }
            match client.lease {
                // A server may keep state without conflicts past the lease (§8.4.2.4).
                Lease::Active => {
                    client.lease = Lease::Courtesy { since_ms: now };
                    self.end_if_blocking_others(key);
                }
                Lease::Courtesy { since_ms } if now >= since_ms + COURTESY_MS => self.expire(key),
                Lease::Courtesy { .. } => {}
            }
        }
    }

    /// Grace would wait for a client that has nothing to reclaim: its full time for a 4.0 client
    /// (RFC 7530 §9.6.2), and for a 4.1 client until its next call, which may be a lease away.
    fn forget_idle(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        if client.recorded && !client.has_state() {
            client.recorded = false;
            let key = crate::state::RecoveryRecord::key(client.family(), &client.owner);
            self.effects.push_back(StateEffect::Forget { key });
        }
    }

    /// A recall or a lock wait may be pending on the client's state.
    fn end_if_blocking_others(&mut self, key: ClientKey) {
        let recalled: Vec<StateKey> = self.clients[key]
            .delegations
            .iter()
            .copied()
            .filter(|&state| self.is_recalled(state))
            .collect();
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

    pub(in crate::state) fn is_courtesy(&self, key: ClientKey) -> bool {
        matches!(self.clients[key].lease, Lease::Courtesy { .. })
    }

    pub(in crate::state) fn replace(&mut self, key: ClientKey) {
        self.report_quick_restart(key);
        // 4.0 stateids of the former instance report EXPIRED (RFC 7530 §16.34.5).
        let ended = if self.clients.get(key).is_some_and(|client| client.family() == Family::V40) {
            Ended::Expired
        } else {
            Ended::Freed
        };
        self.end(key, ended, false, Loss::Restarted);
    }

    /// Two machines with one name and one address take each other's state away.
    fn report_quick_restart(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key) else { return };
        if client.has_state_to_lose()
            && self.latest_ms.saturating_sub(client.renewed_ms) < QUICK_RESTART_MS
        {
            let (owner, address) = (client.owner.clone(), client.address);
            self.note_conflict_with(owner, Some(address), address, true);
        }
    }

    /// Durably before any conflicting grant (§8.4.3): otherwise both clients could hold the state
    /// after a restart.
    pub(in crate::state) fn expire(&mut self, key: ClientKey) {
        self.expire_for(key, Loss::Expired);
    }

    fn expire_for(&mut self, key: ClientKey, why: Loss) {
        let Some(client) = self.clients.get(key) else { return };
        let forget = client.confirmed;
        if client.has_state() && why == Loss::Expired {
            let (owner, address) = (client.owner.clone(), client.address);
            let silent_ms = self.latest_ms.saturating_sub(client.renewed_ms);
            self.effects.push_back(StateEffect::ClientEnded {
                owner,
                address,
                why: ClientEnd::Expired { silent_ms },
            });
        }
        self.end(key, Ended::Expired, forget, why);
    }

    pub(in crate::state) fn end(&mut self, key: ClientKey, ended: Ended, forget: bool, why: Loss) {
        let Some(client) = self.clients.get(key) else { return };
        let (had_state, recorded) = (client.has_state(), client.recorded);
        if forget && recorded {
            if had_state {
                self.record(key, true);
            } else {
                let record = crate::state::RecoveryRecord::key(
                    self.clients[key].family(),
                    &self.clients[key].owner,
                );
                self.effects.push_back(StateEffect::Forget { key: record });
            }
        }
        self.drop_waiters_of(key);
        let sessions = match &self.clients[key].version {
            VersionState::V41(v41) => v41.sessions.clone(),
            VersionState::V40(_) => Vec::new(),
        };
        sessions.into_iter().for_each(|session| self.remove_session(session));
        let client = &mut self.clients[key];
        let copies = std::mem::take(&mut client.copies);
        let delegations: Vec<StateKey> =
            client.delegations.drain().chain(client.revoked.drain()).collect();
        let owners: Vec<_> =
            client.lock_owners.values().chain(client.open_owners.values()).copied().collect();
        let queue = std::mem::take(&mut client.callback_queue);
        queue.into_iter().for_each(|callback| self.forget_callback(callback));
        let locks = owners.iter().filter(|&&owner| self.owners[owner].kind == OwnerKind::Lock);
        let locks: Vec<StateKey> =
            locks.flat_map(|&owner| self.owners[owner].states.values().copied()).collect();
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
        let client = self.clients.remove(key, ended).expect("the entry existed at the start");
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

    /// The client may return with a new id. False for an unknown id.
    pub(crate) fn revoke_client(&mut self, id: vouch_nfs4::ClientId) -> bool {
        let Some(key) = self.client_by_id(id) else { return false };
        let client = &self.clients[key];
        let (owner, address) = (client.owner.clone(), client.address);
        let why = ClientEnd::ByAdministrator;
        self.effects.push_back(StateEffect::ClientEnded { owner, address, why });
        self.expire_for(key, Loss::Revoked);
        true
    }
}
