//! RFC 8881 §18.16, 18.18 and 18.2; RFC 7530 §16.18.

use super::request::{Claim, DelegationExtensions, OpenCall, OpenPlan, Opened};
use std::collections::BTreeSet;
use std::sync::Arc;

use vouch_nfs4::{StateSeq, Stateid, Status};

use crate::state::delegation::record::{AccessWithoutOpen, Granted};
use crate::state::effect::{Loss, StateEffect};
use crate::state::id::{ClientKey, FileKey, FileRef, OwnerKey, StateKey};
use crate::state::limits::EXPIRED_SCAN_CLIENTS_MAX;
use crate::state::open::file_opens::Opener;
use crate::state::open::share::{Share, ShareCounts, WRITE, reachable};
use crate::state::owner::sequence::table_full_status;
use crate::state::quota::Resource;
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Entry, Kind, Open, OwnerKind};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Call it before the file is opened or truncated. Recalls conflicting delegations (DELAY) and
    /// ends conflicting expired clients. [`State::open`] checks again.
    pub(crate) fn check_open(
        &mut self,
        call: &OpenCall<'_>,
        now: u64,
    ) -> Result<OpenPlan<F>, Status> {
        self.client(call.client)?;
        match call.claim {
            Claim::New => self.admit_new(call.client)?,
            Claim::Previous(_) => {
                self.admit_reclaim(call.client, !call.only_reads_tree())?;
                self.start_over(call.client);
            }
            Claim::Delegated(stateid) => {
                self.admit_new(call.client)?;
                self.delegation_allows(call.client, &stateid, &call.file, call.share)?;
            }
            Claim::DelegatedPrevious => return Err(Status::NOTSUPP),
        }
        self.check_shares(call)?;
        if call.truncate {
            self.recall_for_access(&call.file, Some(call.client), AccessWithoutOpen::Change, now)?;
        }
        self.recall_for_open(call.client, &call.file, call.share, now)?;
        let existing = self.existing(call);
        let union = existing.as_ref().map_or(call.share, |(share, _)| share.or(call.share));
        Ok(OpenPlan { union, existing: existing.map(|(_, file)| file) })
    }

    fn existing(&mut self, call: &OpenCall<'_>) -> Option<(Share, F)> {
        let key = self.existing_key(call)?;
        match &self.states[key].kind {
            Kind::Open(open) => Some((open.share(), open.file.clone())),
            _ => None,
        }
    }

    fn existing_key(&mut self, call: &OpenCall<'_>) -> Option<StateKey> {
        let owner = self.find_owner(call.client, OwnerKind::Open, call.owner)?;
        let file = self.files.find(&call.file)?;
        self.owners[owner].states.get(&(file, call.file.export)).copied()
    }

    /// SHARE_DENIED (RFC 8881 §9.7).
    fn check_shares(&mut self, call: &OpenCall<'_>) -> Result<(), Status> {
        // Opens of the same owner count too (§9.7; RFC 7530 §9.9).
        let cuts = if call.truncate { WRITE } else { 0 };
        let wanted = Share { access: call.share.access | cuts, deny: call.share.deny };
        match self.expire_conflicting_opens(
            &call.file,
            Some(call.client),
            |shares| shares.conflicts(wanted),
            |other| wanted.conflicts(other),
        ) {
            true => Ok(()),
            false => Err(Status::SHARE_DENIED),
        }
    }

    /// True if no other open has such a share; `by`: client to ignore. O(log n) for each client.
    pub(in crate::state) fn expire_conflicting_opens(
        &mut self,
        key: &FileKey,
        by: Option<ClientKey>,
        any: impl Fn(&ShareCounts) -> bool,
        fits: impl Fn(Share) -> bool,
    ) -> bool {
        loop {
            let Some(file) =
                self.files.find(key).filter(|&file| any(self.files[file].opens.shares()))
            else {
                return true;
            };
            let mut silent = Vec::new();
            for client in self.files[file].opens.clients(&fits).take(EXPIRED_SCAN_CLIENTS_MAX) {
                if Some(client) == by || !self.is_courtesy(client) {
                    return false;
                }
                silent.push(client);
            }
            if silent.is_empty() {
                return true;
            }
            silent.into_iter().for_each(|client| self.expire(client));
        }
    }

    pub(in crate::state) fn open_of(&self, key: StateKey) -> &Open<F> {
        match &self.states[key].kind {
            Kind::Open(open) => open,
            _ => unreachable!("a list of opens has only opens"),
        }
    }

    /// Adds or widens an open. `opened` allows the share `covers`. DELAY if another call widened
    /// the open beyond `covers` meanwhile.
    pub(crate) fn open(
        &mut self,
        call: &OpenCall<'_>,
        opened: F,
        covers: Share,
        now: u64,
    ) -> Result<Opened, Status> {
        self.client(call.client)?.renew(now);
        let plan = self.check_open(call, now)?;
        if plan.union.access & !covers.access != 0 {
            return Err(Status::DELAY);
        }
        let family = self.client(call.client)?.family();
        if plan.existing.is_none() && !self.room_for_open(call, now) {
            return Err(table_full_status(family, OwnerKind::Open));
        }
        let owner = self.owner(call.client, OwnerKind::Open, call.owner)?;
        let file = self.files.enter(&call.file);
        let before = self.owners[owner].states.get(&(file, call.file.export)).copied();
        let key = match before {
            Some(key) => {
                self.widen(key, file, call, opened);
                key
            }
            None => self.insert_open(call, owner, file, opened),
        };
        // A reclaim must survive the end of grace.
        if !self.clients[call.client].recorded {
            self.record(call.client, false);
        }
        let confirm = self.needs_confirmation(owner, call.claim);
        let delegation = match confirm {
            true => Granted::None,
            false => self.delegate_with_open(call, file, key, now),
        };
        let granted = matches!(delegation, Granted::Read(_) | Granted::Write(_));
        // Only an open can hold a denial, and an existing open keeps its stateid.
        let for_open =
            granted && call.extensions.for_open && before.is_none() && call.share.deny == 0;
        let stateid = self.states[key].stateid(self.boot, key);
        if for_open {
            self.drop_open(key, Ended::Freed, None);
            self.remove_owner_if_idle(owner);
        }
        let stateid = if for_open { Stateid::ANONYMOUS } else { stateid };
        Ok(Opened {
            stateid,
            confirm,
            delegation,
            extensions: DelegationExtensions { times: granted && call.extensions.times, for_open },
        })
    }

    fn insert_open(
        &mut self,
        call: &OpenCall<'_>,
        owner: OwnerKey,
        file: FileRef,
        opened: F,
    ) -> StateKey {
        let open = Open {
            owner,
            access: call.share.access,
            deny: call.share.deny,
            history: call.share.bit(),
            file: opened,
            key: call.file,
            locks: BTreeSet::new(),
            ranges: 0,
        };
        let export = call.file.export;
        let (client, terms, opener) = (call.client, call.terms, call.opener.cloned());
        self.clients[client].count_opens_of(opener.as_ref(), |opens| opens + 1);
        let key = self.states.insert(Entry {
            client,
            file,
            export,
            terms,
            opener,
            seq: StateSeq(1),
            kind: Kind::Open(open),
        });
        self.owners[owner].states.insert((file, export), key);
        let source_key = self.clients[call.client].source_key;
        self.files[file].opens.insert(
            key,
            Opener { source_key, client: call.client, export },
            call.share,
        );
        let client = &mut self.clients[call.client];
        client.opens += 1;
        self.sources.usage_mut(client.source_key).opens += 1;
        self.open_count += 1;
        key
    }

    fn room_for_open(&mut self, call: &OpenCall<'_>, now: u64) -> bool {
        self.latest_ms = self.latest_ms.max(now);
        let (clients, files) = (&self.clients, &mut self.files);
        let source = clients[call.client].source_key;
        let of_file = files.find(&call.file).is_none_or(|file| {
            files[file].opens.has_room(source, |client| clients[client].source_key)
        });
        of_file && self.room_for_one_open(call.client, call.opener)
    }

    pub(in crate::state) fn room_for_one_open(
        &mut self,
        client: ClientKey,
        opener: Option<&Arc<str>>,
    ) -> bool {
        let (record, limits) = (&self.clients[client], &self.config.limits);
        let (per_client_max, opens_max) = (limits.opens_per_client_max, limits.opens_max);
        // A 4.0 client id is no secret: unrelated principals get at most half.
        let of_stranger = record.opens_of_stranger(opener);
        let within_client_limit = record.opens < per_client_max
            && of_stranger.is_none_or(|opens| opens < per_client_max / 2);
        within_client_limit
            && self
                .make_room_for_state(client, Resource::Opens, opens_max, |state| state.open_count)
    }

    /// Not after a reclaim or under a delegation (RFC 7530 §16.18.5).
    fn needs_confirmation(&mut self, owner: crate::state::OwnerKey, claim: Claim) -> bool {
        let Some(sequencer) = self.owners[owner].sequencer.as_deref_mut() else { return false };
        sequencer.confirmed |= claim != Claim::New;
        !sequencer.confirmed
    }

    /// The stateid stays, its sequence number grows (RFC 8881 §9.9).
    fn widen(&mut self, key: StateKey, file: FileRef, call: &OpenCall<'_>, opened: F) {
        let share = call.share;
        let entry = &mut self.states[key];
        entry.seq = entry.seq.next();
        entry.terms = call.terms;
        let Kind::Open(open) = &mut entry.kind else {
            unreachable!("an open owner's states are opens")
        };
        let before = open.share();
        let after = before.or(share);
        (open.access, open.deny) = (after.access, after.deny);
        open.history |= share.bit();
        let old = std::mem::replace(&mut open.file, opened);
        self.move_open(key, file, before, after);
        self.effects.push_back(StateEffect::Release(old));
    }

    pub(crate) fn confirm_open(
        &mut self,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<Stateid, Status> {
        let key = self.resolve(None, stateid, file, now)?;
        let entry = &mut self.states[key];
        let Kind::Open(open) = &entry.kind else { return Err(Status::BAD_STATEID) };
        let owner = open.owner;
        let sequencer = self.owners[owner].sequencer.as_deref_mut().ok_or(Status::BAD_STATEID)?;
        if sequencer.confirmed {
            return Err(Status::BAD_STATEID);
        }
        sequencer.confirmed = true;
        entry.seq = entry.seq.next();
        Ok(entry.stateid(self.boot, key))
    }

    /// INVAL for a share that is no union of the owner's opens (RFC 8881 §18.18.3).
    pub(crate) fn downgrade(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        share: Share,
        now: u64,
    ) -> Result<Stateid, Status> {
        let key = self.resolve_open(client, stateid, file, now)?;
        let entry = &mut self.states[key];
        let Kind::Open(open) = &mut entry.kind else { return Err(Status::BAD_STATEID) };
        let before = open.share();
        if before.or(share) != before {
            return Err(Status::INVAL);
        }
        open.history = reachable(open.history, share).ok_or(Status::INVAL)?;
        (open.access, open.deny) = (share.access, share.deny);
        entry.seq = entry.seq.next();
        let stateid = entry.stateid(self.boot, key);
        let file = entry.file;
        self.move_open(key, file, before, share);
        Ok(stateid)
    }

    fn move_open(&mut self, key: StateKey, file: FileRef, before: Share, after: Share) {
        let Entry { client, export, .. } = self.states[key];
        let by = Opener { source_key: self.clients[client].source_key, client, export };
        let opens = &mut self.files[file].opens;
        opens.remove(key, by, before);
        opens.insert(key, by, after);
    }

    /// LOCKS_HELD while lock owners of this open hold locks (RFC 8881 §18.2.3).
    pub(crate) fn close(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<Stateid, Status> {
        let key = self.resolve_open(client, stateid, file, now)?;
        let entry = &self.states[key];
        let Kind::Open(open) = &entry.kind else { return Err(Status::BAD_STATEID) };
        if open.ranges > 0 {
            return Err(Status::LOCKS_HELD);
        }
        let (owner, client, seq) = (open.owner, entry.client, entry.seq);
        let (file, export, terms, opener, other) =
            (entry.file, entry.export, entry.terms, entry.opener.clone(), stateid.other);
        if vouch_vfs::mutant("close-keeps-share") {
            return Ok(Stateid::INVALID);
        }
        self.drop_open(key, Ended::Freed, None);
        if self.owners[owner].sequencer.is_none() {
            self.remove_owner_if_idle(owner);
            // §18.2.4.
            return Ok(Stateid::INVALID);
        }
        let closed = Entry {
            client,
            file,
            export,
            terms,
            opener,
            seq: seq.next(),
            kind: Kind::Closed(owner),
        };
        let revived = self.states.revive(key, closed);
        let sequencer =
            self.owners[owner].sequencer.as_deref_mut().expect("the entry was just seen");
        if let Some(old) = sequencer.closed.replace(revived) {
            self.states.remove(old, Ended::Freed);
        }
        Ok(Stateid { seq: seq.next(), other })
    }

    pub(in crate::state) fn drop_open(&mut self, key: StateKey, ended: Ended, loss: Option<Loss>) {
        let Some(Kind::Open(open)) = self.states.get_mut(key).map(|entry| &mut entry.kind) else {
            return;
        };
        let locks = std::mem::take(&mut open.locks);
        let owners: Vec<_> = locks.iter().map(|&lock| self.lock_of(lock).owner).collect();
        self.drop_locks(locks, ended);
        owners.into_iter().for_each(|owner| self.remove_owner_if_idle(owner));
        let entry = self.states.remove(key, ended).expect("the entry was just checked");
        let Kind::Open(open) = entry.kind else { unreachable!("the entry is an open") };
        let by = Opener {
            source_key: self.clients[entry.client].source_key,
            client: entry.client,
            export: entry.export,
        };
        self.files[entry.file].opens.remove(key, by, open.share());
        self.owners[open.owner].states.remove(&(entry.file, entry.export));
        let client = &mut self.clients[entry.client];
        client.count_opens_of(entry.opener.as_ref(), |opens| opens - 1);
        client.opens -= 1;
        self.sources.usage_mut(client.source_key).opens -= 1;
        self.open_count -= 1;
        self.release(open.file, false, loss);
        self.remove_file_if_idle(entry.file);
    }

    pub(in crate::state) fn release(&mut self, file: F, delegation: bool, loss: Option<Loss>) {
        self.effects.push_back(match loss {
            None => StateEffect::Release(file),
            Some(why) => StateEffect::Ended { file, delegation, why },
        });
    }

    pub(in crate::state) fn resolve_open(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<StateKey, Status> {
        let key = self.resolve(client, stateid, file, now)?;
        match &self.states[key].kind {
            Kind::Open(open) if self.owner_confirmed(open) => Ok(key),
            _ => Err(Status::BAD_STATEID),
        }
    }

    pub(in crate::state) fn owner_confirmed(&self, open: &Open<F>) -> bool {
        self.owners[open.owner].sequencer.as_deref().is_none_or(|sequencer| sequencer.confirmed)
    }
}
