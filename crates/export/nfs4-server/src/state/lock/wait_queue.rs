//! Order in which freed ranges go to blocked requests (RFC 8881 §9.6 and 20.11). The client repeats
//! its LOCK; the range is briefly reserved for the first waiter.

use super::waiter::Waiter;
use std::sync::Arc;

use crate::state::client::credential::Family;
use crate::state::effect::CallbackOp;
use crate::state::id::{ClientKey, FileKey, FileRef};
use crate::state::lease::timers::Timer;
use crate::state::limits::{
    LOCK_INTEREST_MS, LOCK_RESERVED_MS, OBSOLETE_WAITS_MIN, WAITERS_PER_CLIENT_MAX,
    WAITERS_PER_FILE_MAX,
};
use crate::state::lock::range::{Mode, Range};
use crate::state::lock::request::Denied;
use crate::state::quota::within_share;
use crate::state::stateid::entry::OwnerKind;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Over a limit the request is not queued; the client polls anyway.
    pub(in crate::state) fn enqueue(
        &mut self,
        file: FileRef,
        key: &FileKey,
        client: ClientKey,
        owner: &Arc<[u8]>,
        range: Range,
        mode: Mode,
    ) {
        let waiters = &mut self.files[file].waiters;
        if let Some(waiter) =
            waiters.iter_mut().find(|waiter| waiter.is(client, owner) && waiter.range == range)
        {
            waiter.mode = mode;
            waiter.reserved_ms = None;
            waiter.last_request_ms = self.latest_ms;
            return;
        }
        let (clients, source) = (&self.clients, self.clients[client].source_key);
        let of_source =
            waiters.iter().filter(|waiter| clients[waiter.client].source_key == source).count();
        let has_room = within_share(of_source, 1, waiters.len(), WAITERS_PER_FILE_MAX);
        if !has_room || clients[client].waiters >= WAITERS_PER_CLIENT_MAX {
            return;
        }
        self.clients[client].waiters += 1;
        self.clients[client].awaited_files.insert(file);
        waiters.push(Waiter {
            client,
            file: *key,
            owner: owner.clone(),
            range,
            mode,
            reserved_ms: None,
            last_request_ms: self.latest_ms,
        });
        self.forget_files_of_waits(client);
    }

    fn forget_files_of_waits(&mut self, client: ClientKey) {
        let record = &mut self.clients[client];
        if record.awaited_files.len() > 2 * record.waiters + OBSOLETE_WAITS_MIN {
            let files = &self.files;
            let waits = |file: FileRef| {
                files
                    .table
                    .get(file)
                    .is_some_and(|state| state.waiters.iter().any(|waiter| waiter.client == client))
            };
            record.awaited_files.retain(|&file| waits(file));
        }
    }

    pub(in crate::state) fn dequeue(
        &mut self,
        file: FileRef,
        client: ClientKey,
        owner: &[u8],
        range: Range,
    ) {
        let waiters = &mut self.files[file].waiters;
        if let Some(at) =
            waiters.iter().position(|waiter| waiter.is(client, owner) && waiter.range == range)
        {
            waiters.remove(at);
            self.clients[client].waiters -= 1;
        }
    }

    pub(in crate::state) fn reserved_for_another(
        &self,
        file: FileRef,
        client: ClientKey,
        owner: &[u8],
        range: Range,
        mode: Mode,
        now: u64,
    ) -> Option<Denied> {
        let mut waiters = self.files[file]
            .waiters
            .iter()
            .take_while(|waiter| !(waiter.is(client, owner) && waiter.range == range));
        let first = waiters.find(|waiter| {
            waiter.reserved_ms.is_some_and(|until| now < until)
                && !waiter.is(client, owner)
                && waiter.collides(range, mode)
        })?;
        let (client, owner) =
            (self.clients[first.client].id, self.sent_owner_name(first.client, &first.owner));
        Some(Denied { range: first.range, mode: first.mode, client, owner })
    }

    /// In order, those without a conflict left. O(w + log n) each, for w waiters and n ranges.
    pub(in crate::state) fn wake(&mut self, file: FileRef, freed: Range) {
        if self.files.table.get(file).is_none_or(|state| state.waiters.is_empty()) {
            return;
        }
        let now = self.latest_ms;
        self.forget_lost_interest(file, now);
        let mut notified = Vec::new();
        let mut ahead: Vec<(Range, Mode)> = Vec::new();
        for at in 0..self.files[file].waiters.len() {
            let waiter = &self.files[file].waiters[at];
            let (range, mode) = (waiter.range, waiter.mode);
            if !range.overlaps(freed) {
                if waiter.reserved_ms.is_some_and(|until| now < until) {
                    ahead.push((range, mode));
                }
                continue;
            }
            if ahead.iter().any(|&(other, held)| other.overlaps(range) && held.conflicts(mode)) {
                continue;
            }
            let (client, name) = (waiter.client, waiter.owner.clone());
            let owner = self.find_owner(client, OwnerKind::Lock, &name);
            if self.files[file].locks.conflict(range, mode, owner, None).is_none() {
                ahead.push((range, mode));
                let waiter = &mut self.files[file].waiters[at];
                if waiter.reserved_ms.is_none_or(|until| until <= now) {
                    waiter.reserved_ms = Some(now + LOCK_RESERVED_MS);
                    notified.push((waiter.client, waiter.file, waiter.owner.clone()));
                }
            }
        }
        if notified.is_empty() {
            return;
        }
        self.timers.set(now + LOCK_RESERVED_MS, Timer::Waiter(file));
        for (client, file, owner) in notified {
            // 4.0 has no CB_NOTIFY_LOCK: its clients poll.
            if self.clients[client].family() == Family::V41 {
                self.queue_callback(
                    client,
                    CallbackOp::NotifyLock { file, owner },
                    crate::state::callback::record::Subject::Nothing,
                );
            }
        }
    }

    /// 4.0 clients that have not polled for a lease (RFC 7530 §9.4).
    fn forget_lost_interest(&mut self, file: FileRef, now: u64) {
        let (clients, lease_ms) = (&mut self.clients, self.config.lease_ms);
        self.files[file].waiters.retain(|waiter| {
            let lost = clients[waiter.client].family() == Family::V40
                && now >= waiter.last_request_ms + lease_ms;
            if lost {
                clients[waiter.client].waiters -= 1;
            }
            !lost
        });
    }

    /// Absent waiters move to the end of the queue, silent ones leave it, and the next wakes.
    /// CB_NOTIFY_LOCK is repeated: Linux polls only after half a minute.
    pub(in crate::state) fn reservation_due(&mut self, file: FileRef, now: u64) {
        self.latest_ms = now;
        let Some(state) = self.files.table.get_mut(file) else { return };
        let clients = &mut self.clients;
        let late = |waiter: &Waiter| waiter.reserved_ms.is_some_and(|until| until <= now);
        state.waiters.retain(|waiter| {
            let lost = late(waiter) && now >= waiter.last_request_ms + LOCK_INTEREST_MS;
            if lost {
                clients[waiter.client].waiters -= 1;
            }
            !lost
        });
        state.waiters.sort_by_key(|waiter| late(waiter));
        for waiter in state.waiters.iter_mut().filter(|waiter| late(waiter)) {
            waiter.reserved_ms = None;
        }
        self.wake(file, Range::ALL);
        self.remove_file_if_idle(file);
    }

    pub(in crate::state) fn drop_waiters_of(&mut self, client: ClientKey) {
        for file in std::mem::take(&mut self.clients[client].awaited_files) {
            if let Some(state) = self.files.table.get_mut(file) {
                state.waiters.retain(|waiter| waiter.client != client);
                self.remove_file_if_idle(file);
            }
        }
        self.clients[client].waiters = 0;
    }
}
