//! RFC 8881 §9 and 18.10 to 18.12; RFC 7530 §16.37. The server does not detect deadlocks.

use super::request::{Denied, LockBy, LockCall, LockError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vouch_nfs4::{StateSeq, Stateid, Status};
use vouch_vfs::mutant;

use crate::state::id::{ClientKey, FileKey, FileRef, OwnerKey, StateKey};
use crate::state::limits::{EXPIRED_SCAN_CLIENTS_MAX, EXPIRED_SCAN_RANGES_MAX};
use crate::state::lock::range::{Mode, Range, Ranges};
use crate::state::open::share::{READ, WRITE};
use crate::state::owner::sequence::table_full_status;
use crate::state::quota::within_share;
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Entry, Kind, Lock, OwnerKind, OwnerReply};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    pub(crate) fn lock(&mut self, call: &LockCall<'_>, now: u64) -> Result<Stateid, LockError> {
        self.latest_ms = now;
        let (open, existing) = self.lock_state_for(call, now)?;
        let entry = &self.states[open];
        let (client, file) = (entry.client, entry.file);
        let Kind::Open(state) = &entry.kind else { return Err(Status::BAD_STATEID.into()) };
        // §18.10.3.
        let needed = if call.mode == Mode::Exclusive { WRITE } else { READ };
        if state.access & needed == 0 {
            return Err(Status::OPENMODE.into());
        }
        match call.reclaim {
            true => {
                self.admit_reclaim(client, !(call.file.is_of_tree() && call.mode == Mode::Shared))?
            }
            false => self.admit_new(client)?,
        }
        let (record, max) = (&self.clients[client], self.config.limits.locks_per_client_max);
        let within_client_limit = record.locks < max && (existing.is_some() || record.locked < max);
        if !within_client_limit || !self.room_for_lock(client) {
            return Err(table_full_status(self.clients[client].family(), OwnerKind::Lock).into());
        }
        let (owner_key, name): (Option<OwnerKey>, Arc<[u8]>) = match (existing, call.by) {
            (Some(lock), _) => {
                let owner = self.lock_of(lock).owner;
                (Some(owner), self.owners[owner].name.clone())
            }
            (None, LockBy::New { owner, .. }) => {
                (self.find_owner(client, OwnerKind::Lock, owner), owner.into())
            }
            (None, LockBy::Old(_)) => unreachable!("an old lock owner has a lock state"),
        };
        let is_unchecked = existing.is_some() && mutant("lock-upgrade-ignores-others")
            || call.wait && mutant("waiting-lock-ignores-holders");
        if !is_unchecked
            && let Err(denied) =
                self.expire_conflicting_lockers(&call.file, owner_key, call.range, call.mode)
        {
            // Another client got the lock (§18.10.3).
            if call.reclaim {
                return Err(Status::RECLAIM_CONFLICT.into());
            }
            if call.wait {
                self.enqueue(file, &call.file, client, &name, call.range, call.mode);
            }
            return Err(LockError::Denied(denied));
        }
        if call.wait
            && let Some(denied) =
                self.reserved_for_another(file, client, &name, call.range, call.mode, now)
        {
            self.enqueue(file, &call.file, client, &name, call.range, call.mode);
            return Err(LockError::Denied(denied));
        }
        let lock = match existing {
            Some(lock) => {
                self.states[lock].seq = self.states[lock].seq.next();
                self.begin_lock_owner(self.lock_of(lock).owner, call.by);
                lock
            }
            None => self.first_lock(call, client, file, open, &name)?,
        };
        self.set_range(lock, call.range, Some(call.mode));
        self.dequeue(file, client, &name, call.range);
        if call.mode == Mode::Shared {
            self.wake(file, call.range);
        }
        Ok(self.states[lock].stateid(self.boot, lock))
    }

    /// RFC 7530 §16.10.5. Also resets a known owner: the client may have forgotten it after a lost
    /// RELEASE_LOCKOWNER.
    fn begin_lock_owner(&mut self, owner: OwnerKey, by: LockBy<'_>) {
        if let (Some(sequencer), LockBy::New { seq, .. }) =
            (self.owners[owner].sequencer.as_deref_mut(), by)
        {
            (sequencer.begun, sequencer.confirmed, sequencer.last) = (true, true, seq);
            sequencer.reply = OwnerReply::default();
        }
    }

    fn room_for_lock(&self, client: ClientKey) -> bool {
        let own = self.sources.usage(self.clients[client].source_key).locks;
        within_share(own, 1, self.lock_count, self.config.limits.locks_max)
    }

    fn lock_state_for(
        &mut self,
        call: &LockCall<'_>,
        now: u64,
    ) -> Result<(StateKey, Option<StateKey>), Status> {
        match call.by {
            LockBy::New { open, owner, .. } => {
                let open = self.resolve_open(call.client, open, &call.file, now)?;
                let (client, file) = (self.states[open].client, self.states[open].file);
                let place = (file, call.file.export);
                let owner = self
                    .find_owner(client, OwnerKind::Lock, owner)
                    .map(|owner| &self.owners[owner]);
                let Some((existing, owner)) =
                    owner.and_then(|owner| Some((*owner.states.get(&place)?, owner)))
                else {
                    return Ok((open, None));
                };
                let Some(sequencer) = owner.sequencer.as_deref() else {
                    return Ok((open, Some(existing)));
                };
                if sequencer.busy {
                    return Err(Status::DELAY);
                }
                let lock = self.lock_of(existing);
                if lock.open != open && lock.ranges.is_empty() {
                    self.drop_lock(existing, Ended::Freed);
                    return Ok((open, None));
                }
                Ok((open, Some(existing)))
            }
            LockBy::Old(lock) => {
                let lock = self.resolve_lock(call.client, lock, &call.file, now)?;
                Ok((self.lock_of(lock).open, Some(lock)))
            }
        }
    }

    fn resolve_lock(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<StateKey, Status> {
        let key = self.resolve(client, stateid, file, now)?;
        match &self.states[key].kind {
            Kind::Lock(_) => Ok(key),
            _ => Err(Status::BAD_STATEID),
        }
    }

    pub(in crate::state) fn lock_of(&self, key: StateKey) -> &Lock {
        match &self.states[key].kind {
            Kind::Lock(lock) => lock,
            _ => unreachable!("a list of locks has only locks"),
        }
    }

    /// O(log n) in ranges of the file, plus the cost of ended clients.
    fn expire_conflicting_lockers(
        &mut self,
        key: &FileKey,
        owner: Option<OwnerKey>,
        range: Range,
        mode: Mode,
    ) -> Result<(), Denied> {
        loop {
            let Some(file) = self.files.find(key) else { return Ok(()) };
            let (mut silent, mut after, mut looks) = (BTreeSet::new(), None, 0);
            while silent.len() < EXPIRED_SCAN_CLIENTS_MAX
                && looks < EXPIRED_SCAN_RANGES_MAX
                && let Some((held, mode)) =
                    self.files[file].locks.conflict(range, mode, owner, after)
            {
                let client = self.states[held.lock].client;
                if mutant("locks-of-one-client-do-not-conflict")
                    && owner.is_some_and(|owner| self.owners[owner].client == client)
                {
                    return Ok(());
                }
                if !self.is_courtesy(client) {
                    let owner = self.sent_owner_name(client, &self.owners[held.owner].name);
                    return Err(Denied {
                        range: held.range,
                        mode,
                        client: self.clients[client].id,
                        owner,
                    });
                }
                silent.insert(client);
                after = Some(held.position());
                looks += 1;
            }
            if silent.is_empty() {
                return Ok(());
            }
            silent.into_iter().for_each(|client| self.expire(client));
        }
    }

    fn first_lock(
        &mut self,
        call: &LockCall<'_>,
        client: ClientKey,
        file: FileRef,
        open: StateKey,
        name: &[u8],
    ) -> Result<StateKey, Status> {
        let source_key = self.clients[client].source_key;
        if !self.files[file].locks.has_room(source_key) {
            return Err(table_full_status(self.clients[client].family(), OwnerKind::Lock));
        }
        let owner = self.owner(client, OwnerKind::Lock, name)?;
        self.begin_lock_owner(owner, call.by);
        let lock = Lock { owner, open, ranges: Ranges::default() };
        let (export, terms, opener) =
            (call.file.export, self.states[open].terms, self.states[open].opener.clone());
        self.count_locked(client, 0, 1);
        let key = self.states.insert(Entry {
            client,
            file,
            export,
            terms,
            opener,
            seq: StateSeq(1),
            kind: Kind::Lock(lock),
        });
        self.owners[owner].states.insert((file, export), key);
        self.files[file].locks.add_owner(source_key);
        match &mut self.states[open].kind {
            Kind::Open(open) => {
                open.locks.insert(key);
            }
            _ => unreachable!("the open of a lock is an open"),
        }
        Ok(key)
    }

    fn set_range(&mut self, key: StateKey, range: Range, mode: Option<Mode>) {
        let entry = &mut self.states[key];
        let (file, client) = (entry.file, entry.client);
        let Kind::Lock(lock) = &mut entry.kind else { unreachable!("the entry is a lock") };
        let (owner, open) = (lock.owner, lock.open);
        let change = lock.ranges.set(range, mode);
        self.files[file].locks.change(key, owner, &change, self.hasher);
        self.count_ranges(client, open, change.removed.len(), change.added.len());
    }

    fn count_ranges(&mut self, client: ClientKey, open: StateKey, removed: usize, added: usize) {
        let client = &mut self.clients[client];
        let open = self.states.get_mut(open).and_then(|entry| match &mut entry.kind {
            Kind::Open(open) => Some(&mut open.ranges),
            _ => None,
        });
        let counts = [
            &mut client.locks,
            &mut self.sources.usage_mut(client.source_key).locks,
            &mut self.lock_count,
        ];
        counts.into_iter().chain(open).for_each(|count| *count = *count - removed + added);
    }

    fn count_locked(&mut self, client: ClientKey, removed: usize, added: usize) {
        let client = &mut self.clients[client];
        let counts = [
            &mut client.locked,
            &mut self.sources.usage_mut(client.source_key).locks,
            &mut self.lock_count,
            &mut self.locked_count,
        ];
        counts.into_iter().for_each(|count| *count = *count - removed + added);
    }

    pub(crate) fn unlock(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        range: Range,
        now: u64,
    ) -> Result<Stateid, Status> {
        self.latest_ms = now;
        let key = self.resolve_lock(client, stateid, file, now)?;
        let client = self.states[key].client;
        let short = self.clients[client].locks > self.config.limits.locks_per_client_max
            || !self.room_for_lock(client);
        if short && self.lock_of(key).ranges.splits(range) {
            return Err(Status::LOCK_RANGE);
        }
        let released = if mutant("unlock-releases-all-ranges") { Range::ALL } else { range };
        if !mutant("unlock-keeps-lock") {
            self.set_range(key, released, None);
        }
        self.states[key].seq = self.states[key].seq.next();
        let file = self.states[key].file;
        let stateid = self.states[key].stateid(self.boot, key);
        self.wake(file, range);
        Ok(stateid)
    }

    pub(crate) fn test_lock(
        &mut self,
        client: ClientKey,
        owner: &[u8],
        file: &FileKey,
        range: Range,
        mode: Mode,
        now: u64,
    ) -> Result<(), LockError> {
        self.latest_ms = now;
        self.client(client)?;
        if self.grace.is_active() {
            return Err(Status::GRACE.into());
        }
        let owner = self.find_owner(client, OwnerKind::Lock, owner);
        self.expire_conflicting_lockers(file, owner, range, mode).map_err(LockError::Denied)
    }

    /// All owners of this name that the caller may release. LOCKS_HELD (RFC 7530 §16.37.3).
    pub(crate) fn release_lock_owner(
        &mut self,
        client: ClientKey,
        name: &[u8],
        caller: Option<&Arc<str>>,
    ) -> Result<(), Status> {
        let mut held = false;
        for known in self.clients[client].releasable_owner_names(name, caller) {
            let Some(owner) = self.find_owner(client, OwnerKind::Lock, &known) else { continue };
            let states: Vec<StateKey> = self.owners[owner].states.values().copied().collect();
            if states.iter().any(|&key| !self.lock_of(key).ranges.is_empty()) {
                held = true;
                continue;
            }
            self.drop_locks(states, Ended::Freed);
            self.drop_owner(owner);
        }
        if held { Err(Status::LOCKS_HELD) } else { Ok(()) }
    }

    pub(in crate::state) fn drop_lock(&mut self, key: StateKey, ended: Ended) {
        self.drop_locks([key], ended);
    }

    pub(in crate::state) fn drop_locks(
        &mut self,
        keys: impl IntoIterator<Item = StateKey>,
        ended: Ended,
    ) {
        let mut freed: BTreeMap<FileRef, Range> = BTreeMap::new();
        for key in keys {
            if let Some((file, range)) = self.take_lock(key, ended) {
                freed.entry(file).and_modify(|all| *all = all.hull(range)).or_insert(range);
            }
        }
        freed.into_iter().for_each(|(file, range)| self.wake(file, range));
    }

    fn take_lock(&mut self, key: StateKey, ended: Ended) -> Option<(FileRef, Range)> {
        let entry = self.states.remove(key, ended)?;
        let Kind::Lock(lock) = entry.kind else { unreachable!("the entry is a lock") };
        let source_key = self.clients[entry.client].source_key;
        self.files[entry.file].locks.remove_owner(source_key, key, lock.ranges.iter());
        self.owners[lock.owner].states.remove(&(entry.file, entry.export));
        self.count_ranges(entry.client, lock.open, lock.ranges.len(), 0);
        self.count_locked(entry.client, 1, 0);
        if let Some(Kind::Open(open)) = self.states.get_mut(lock.open).map(|entry| &mut entry.kind)
        {
            open.locks.remove(&key);
        }
        let awaited = !self.files[entry.file].waiters.is_empty();
        self.remove_file_if_idle(entry.file);
        lock.ranges.hull().filter(|_| awaited).map(|range| (entry.file, range))
    }
}
