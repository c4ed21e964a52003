//! Grant, recall, revocation and return (RFC 8881 §10.4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{AccessWithoutOpen, Delegation, Granted, Holder, Want};
use vouch_nfs4::op::{DelegationType, NoDelegation, SequenceFlags};
use vouch_nfs4::{StateSeq, Stateid, Status};
use vouch_vfs::mutant;

use crate::server::HOLDER_WAIT_MS;
use crate::state::DelegationPolicy;
use crate::state::callback::record::Subject;
use crate::state::client::credential::Family;
use crate::state::delegation::record::{HolderAnswer, HolderQuestion};
use crate::state::effect::{CallbackOp, HolderAttributes, Loss, StateEffect};
use crate::state::id::{ClientKey, FileKey, FileRef, StateKey};
use crate::state::lease::timers::Timer;
use crate::state::limits::{CALLBACK_TIMEOUT_MS, DELEGATIONS_PER_FILE_MAX, REVOKED_PER_CLIENT_MAX};
use crate::state::open::request::{Claim, OpenCall};
use crate::state::open::share::{READ, Share, WRITE};
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Entry, Kind};
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Errors: DELAY until the delegations are returned (§10.4.2 and 10.4.4).
    #[inline]
    pub(crate) fn recall_for_access(
        &mut self,
        file: &FileKey,
        by: Option<ClientKey>,
        access: AccessWithoutOpen,
        now: u64,
    ) -> Result<(), Status> {
        // The access happens after this call: no conflicting delegation until then.
        if access != AccessWithoutOpen::Read && self.config.delegations != DelegationPolicy::Never {
            self.files.note_change(file, by, now);
        }
        let is_size = access == AccessWithoutOpen::Change;
        if self.delegation_count == 0 || is_size && mutant("change-does-not-recall") {
            return Ok(());
        }
        self.recall_others(file, by, access == AccessWithoutOpen::Read, false, now)
    }

    pub(in crate::state) fn recall_for_open(
        &mut self,
        client: ClientKey,
        file: &FileKey,
        share: Share,
        now: u64,
    ) -> Result<(), Status> {
        if self.delegation_count == 0 {
            return Ok(());
        }
        let reads_only = share.access & WRITE == 0 && share.deny & READ == 0;
        self.recall_others(file, Some(client), reads_only, false, now)
    }

    fn recall_others(
        &mut self,
        file: &FileKey,
        by: Option<ClientKey>,
        reads_only: bool,
        truncate: bool,
        now: u64,
    ) -> Result<(), Status> {
        let Some(state) = self.files.find(file) else { return Ok(()) };
        let others = |key: &StateKey| !self.is_of(*key, by, file);
        let conflicting: Vec<StateKey> = match reads_only {
            true => self.write_delegation(state).into_iter().filter(others).collect(),
            false => self.files[state].delegations.iter().copied().filter(others).collect(),
        };
        let mut outcome = Ok(());
        for key in conflicting {
            let Some(client) = self.states.get(key).map(|entry| entry.client) else { continue };
            if self.is_courtesy(client) {
                self.expire(client);
            } else {
                self.recall(key, truncate, now);
                if !mutant("recall-is-not-awaited") {
                    outcome = Err(Status::DELAY);
                }
            }
        }
        outcome
    }

    pub(in crate::state) fn delegation_of(&self, key: StateKey) -> &Delegation<F> {
        match &self.states[key].kind {
            Kind::Delegation(delegation) => delegation,
            _ => unreachable!("a list of delegations has only delegations"),
        }
    }

    pub(in crate::state) fn is_recalled(&self, key: StateKey) -> bool {
        matches!(self.states.get(key).map(|entry| &entry.kind), Some(Kind::Delegation(delegation)) if delegation.recalled_ms.is_some())
    }

    /// See [`Self::recall_due`].
    pub(in crate::state) fn recall(&mut self, key: StateKey, truncate: bool, now: u64) {
        let Some(entry) = self.states.get_mut(key) else { return };
        let Kind::Delegation(delegation) = &mut entry.kind else { return };
        if delegation.recalled_ms.is_some() {
            return;
        }
        delegation.recalled_ms = Some(now);
        let file = delegation.key;
        let stateid = entry.stateid(self.boot, key);
        let client = entry.client;
        self.files.note_conflict(&file, now);
        self.timers.set(now + self.config.lease_ms / 2, Timer::Recall(key));
        self.queue_callback(
            client,
            CallbackOp::Recall { stateid, file, truncate },
            Subject::Recall(key),
        );
    }

    /// Reports the delay after half a lease. Revokes one lease after the recall, but not before the
    /// holder's own lease ends (§10.4.6): until then it may write what it has cached. A holder that
    /// renews its lease for ever keeps others waiting for two leases at most.
    pub(in crate::state) fn recall_due(&mut self, key: StateKey, now: u64) {
        let lease_ms = self.config.lease_ms;
        let Some(entry) = self.states.get_mut(key) else { return };
        let Kind::Delegation(delegation) = &mut entry.kind else { return };
        let Some(recalled_ms) = delegation.recalled_ms else { return };
        let renewed_ms = self.clients[entry.client].renewed_ms;
        let due_ms = (recalled_ms.max(renewed_ms) + lease_ms).min(recalled_ms + 2 * lease_ms);
        if now >= due_ms {
            return self.revoke(key);
        }
        let waited_ms = now.saturating_sub(recalled_ms);
        if waited_ms >= lease_ms / 2 && !std::mem::replace(&mut delegation.is_overdue, true) {
            let file = delegation.key;
            self.report_recall(key, file, waited_ms, false);
        }
        self.timers.set(due_ms, Timer::Recall(key));
    }

    fn report_recall(&mut self, key: StateKey, file: FileKey, waited_ms: u64, is_revoked: bool) {
        let client = &self.clients[self.states[key].client];
        let (owner, address) = (client.owner.clone(), client.address);
        self.effects.push_back(StateEffect::RecallOverdue {
            owner,
            address,
            file,
            waited_ms,
            is_revoked,
        });
    }

    /// In 4.1 SEQUENCE reports the stateid until it is freed (§10.4.6).
    pub(in crate::state) fn revoke(&mut self, key: StateKey) {
        let Kind::Delegation(delegation) = &self.states[key].kind else {
            unreachable!("the entry is a delegation")
        };
        let waited_ms =
            self.latest_ms.saturating_sub(delegation.recalled_ms.unwrap_or(self.latest_ms));
        let file = delegation.key;
        self.report_recall(key, file, waited_ms, true);
        self.delegations_revoked += 1;
        self.revoke_for(key, Loss::NotReturned);
    }

    pub(in crate::state) fn revoke_for(&mut self, key: StateKey, why: Loss) {
        let client = self.states[key].client;
        if self.clients[client].family() == Family::V40 {
            return self.drop_delegation(key, Ended::Expired, Some(why));
        }
        let entry = &mut self.states[key];
        let (file, kind) = (entry.file, std::mem::replace(&mut entry.kind, Kind::Revoked));
        let Kind::Delegation(delegation) = kind else { unreachable!("the entry is a delegation") };
        self.unlink_delegation(key, client, file, delegation, Some(why));
        let client = &mut self.clients[client];
        client.revoked.insert(key);
        client.flags |= SequenceFlags::RECALLABLE_STATE_REVOKED;
    }

    fn unlink_delegation(
        &mut self,
        key: StateKey,
        client: ClientKey,
        file: FileRef,
        ended: Delegation<F>,
        loss: Option<Loss>,
    ) {
        self.delegation_count -= 1;
        if ended.is_directory {
            self.directory_delegation_count -= 1;
            self.clients[client].directory_delegations -= 1;
        }
        if ended.write {
            self.write_delegations_ended.fetch_add(1, Ordering::Release);
        }
        self.clients[client].delegations.remove(&key);
        self.files[file].delegations.retain(|&other| other != key);
        self.release(ended.file, true, loss);
        self.remove_file_if_idle(file);
    }

    pub(in crate::state) fn drop_delegation(
        &mut self,
        key: StateKey,
        ended: Ended,
        loss: Option<Loss>,
    ) {
        let Some(entry) = self.states.remove(key, ended) else { return };
        if let Kind::Delegation(delegation) = entry.kind {
            self.unlink_delegation(key, entry.client, entry.file, delegation, loss);
        }
    }

    pub(in crate::state) fn free_revoked(&mut self, client: ClientKey, key: StateKey) {
        self.states.remove(key, Ended::Freed);
        let client = &mut self.clients[client];
        client.revoked.remove(&key);
        if client.revoked.is_empty() {
            client.flags =
                SequenceFlags(client.flags.0 & !SequenceFlags::RECALLABLE_STATE_REVOKED.0);
        }
    }

    pub(crate) fn return_delegation(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        now: u64,
    ) -> Result<(), Status> {
        let key = self.resolve(client, stateid, file, now)?;
        match &self.states[key].kind {
            Kind::Delegation(_) => {
                self.drop_delegation(key, Ended::Freed, None);
                Ok(())
            }
            _ => Err(Status::BAD_STATEID),
        }
    }

    /// Delegations end with their client.
    pub(crate) fn purge_delegations(&self) -> Status {
        Status::NOTSUPP
    }

    /// CLAIM_DELEGATE_CUR; a recalled delegation will do (§10.2.1).
    pub(in crate::state) fn delegation_allows(
        &mut self,
        client: ClientKey,
        stateid: &Stateid,
        file: &FileKey,
        share: Share,
    ) -> Result<(), Status> {
        let now = self.latest_ms;
        let by = (self.clients[client].family() == Family::V41).then_some(client);
        let key = self.resolve(by, stateid, file, now)?;
        let entry = &self.states[key];
        match &entry.kind {
            Kind::Delegation(delegation) if entry.client == client && !delegation.is_directory => {
                match delegation.write || share.access & WRITE == 0 {
                    true => Ok(()),
                    false => Err(Status::ACCESS),
                }
            }
            _ => Err(Status::BAD_STATEID),
        }
    }

    pub(in crate::state) fn delegate_with_open(
        &mut self,
        call: &OpenCall<'_>,
        file: FileRef,
        open: StateKey,
        now: u64,
    ) -> Granted {
        let again = self.files.note_open(&call.file, call.client, now);
        let write = match call.claim {
            Claim::Previous(DelegationType::Read | DelegationType::ReadAttrs) => {
                return self.grant_again(call, file, open, false);
            }
            Claim::Previous(DelegationType::Write | DelegationType::WriteAttrs) => {
                return self.grant_again(call, file, open, true);
            }
            Claim::Previous(_) | Claim::Delegated(_) | Claim::DelegatedPrevious => {
                return Granted::None;
            }
            Claim::New => call.share.access == READ | WRITE,
        };
        let is_requested = !matches!(call.want, Want::Unstated);
        let refused = |why| if is_requested { Granted::Refused(why) } else { Granted::None };
        match call.want {
            Want::Read | Want::Write | Want::Any if !call.may_delegate => {
                return refused(NoDelegation::Resource(false));
            }
            Want::Unstated if !call.may_delegate => return Granted::None,
            Want::No => return refused(NoDelegation::NOT_WANTED),
            Want::Cancel => return refused(NoDelegation::CANCELLED),
            Want::Unstated if !again && self.config.delegations != DelegationPolicy::Always => {
                return Granted::None;
            }
            Want::Read if write => return refused(NoDelegation::Contention(false)),
            _ => {}
        }
        let many = self.files[file].delegations.len() >= DELEGATIONS_PER_FILE_MAX;
        if many || !self.may_grant(call.client) || call.share.access == WRITE {
            return refused(NoDelegation::Resource(false));
        }
        let state = &self.files[file];
        if self.has_delegation(call.client, file) {
            return refused(NoDelegation::NOT_SUPP_UPGRADE);
        }
        // §10.4: read delegations while nobody writes; a write delegation for the only client with
        // the file open.
        let free = match write {
            false if mutant("delegation-beside-writers") => self.write_delegation(file).is_none(),
            false => state.opens.shares().writers() == 0 && self.write_delegation(file).is_none(),
            true => {
                state.delegations.is_empty()
                    && state.opens.are_all_of(call.client, call.file.export, |_| true)
            }
        };
        if !free
            || self.files.contended(&call.file, now)
            || self.files.changed_by_others(&call.file, call.client, now)
        {
            return refused(NoDelegation::Contention(false));
        }
        let granted = self.grant(call, file, open, write);
        self.keep_room_for_delegations(now);
        granted
    }

    /// The claim cannot be verified: one for each client and file, without conflict with other
    /// reclaims (§10.2.1).
    fn grant_again(
        &mut self,
        call: &OpenCall<'_>,
        file: FileRef,
        open: StateKey,
        write: bool,
    ) -> Granted {
        let client = call.client;
        let state = &self.files[file];
        let others = |key: &StateKey| !self.is_of(*key, Some(client), &call.file);
        let held = state
            .delegations
            .iter()
            .any(|key| !others(key) || write || self.delegation_of(*key).write);
        let opened =
            !state.opens.are_all_of(client, call.file.export, |share| write || share.writes());
        if held
            || !call.may_delegate
            || opened
            || state.delegations.len() >= DELEGATIONS_PER_FILE_MAX
            || self.config.delegations == DelegationPolicy::Never
            || self.file_delegation_count() >= self.config.limits.delegations_max
        {
            return Granted::None;
        }
        self.grant(call, file, open, write)
    }

    fn may_grant(&self, client: ClientKey) -> bool {
        self.file_delegation_count() < self.config.limits.delegations_max
            && self.may_hold_another(client)
    }

    pub(in crate::state) fn may_hold_another(&self, client: ClientKey) -> bool {
        self.config.delegations != DelegationPolicy::Never
            && !self.grace.is_active()
            && self.clients[client].revoked.len() < REVOKED_PER_CLIENT_MAX
            && self.callbacks_reach(client)
    }

    fn grant(
        &mut self,
        call: &OpenCall<'_>,
        file: FileRef,
        open: StateKey,
        write: bool,
    ) -> Granted {
        let client = call.client;
        let open_file = match &self.states[open].kind {
            Kind::Open(open) => open.file.clone(),
            _ => unreachable!("a delegation comes with an open"),
        };
        let times = call.extensions.times;
        let delegation = Delegation {
            key: call.file,
            write,
            is_directory: false,
            file: open_file,
            times,
            recalled_ms: None,
            is_overdue: false,
            answer: None,
            question: None,
            shown_change: 0,
        };
        let (export, terms, opener) = (call.file.export, call.terms, call.opener.cloned());
        let kind = Kind::Delegation(delegation);
        let key = self.states.insert(Entry {
            client,
            file,
            export,
            terms,
            opener,
            seq: StateSeq(1),
            kind,
        });
        debug_assert!(
            self.files[file].delegations.is_empty()
                || !write && self.write_delegation(file).is_none(),
            "a single writer runs alone"
        );
        let stateid = self.link_delegation(key);
        match write {
            true => Granted::Write(stateid),
            false => Granted::Read(stateid),
        }
    }

    pub(in crate::state) fn link_delegation(&mut self, key: StateKey) -> Stateid {
        let Entry { client, file, .. } = self.states[key];
        self.clients[client].delegations.insert(key);
        self.files[file].delegations.push(key);
        self.delegation_count += 1;
        self.states[key].stateid(self.boot, key)
    }

    /// GETATTR (§10.4.3; RFC 9754 §5). `times`: only times are requested, which many holders do not
    /// keep. DELAY during the recall from an unresponsive holder.
    pub(crate) fn delegated_attributes(
        &mut self,
        file: &FileKey,
        by: Option<ClientKey>,
        times: bool,
        now: u64,
    ) -> Result<Holder, Status> {
        let Some(key) = self.other_holder(file, by) else { return Ok(Holder::None) };
        if mutant("getattr-asks-no-holder") {
            return Ok(Holder::None);
        }
        let client = self.states[key].client;
        if self.is_courtesy(client) {
            self.expire(client);
            return Ok(Holder::None);
        }
        let Kind::Delegation(delegation) = &mut self.states[key].kind else {
            unreachable!("the entry is a delegation")
        };
        if times && !delegation.times {
            return Ok(Holder::None);
        }
        if let Some(answer) = &delegation.answer
            && answer.serves(by, now)
        {
            return Ok(Holder::Reported(answer.attributes));
        }
        if delegation.recalled_ms.is_some() {
            // In 4.0 the caller may be the holder, about to return the delegation. DELAY would
            // block that.
            return if by.is_none() { Ok(Holder::None) } else { Err(Status::DELAY) };
        }
        // Its answers come too late for a call that waits, which would get DELAY for ever.
        let is_slow = |answer: &HolderAnswer| {
            answer.answered_ms > answer.question.asked_ms + 2 * HOLDER_WAIT_MS
        };
        if delegation.question.is_none() && delegation.answer.as_ref().is_some_and(is_slow) {
            self.recall(key, false, now);
            return Err(Status::DELAY);
        }
        match delegation.question.map(|question| question.asked_ms) {
            Some(at) if now < at + CALLBACK_TIMEOUT_MS => return Ok(Holder::Pending(at)),
            Some(_) => {
                self.recall(key, false, now);
                return Err(Status::DELAY);
            }
            None => {}
        }
        let asked_ms = now.max(self.latest_ms);
        delegation.question = Some(HolderQuestion { asked_ms, asker: by });
        let op = CallbackOp::Getattr { file: delegation.key, times: delegation.times };
        self.queue_callback(client, op, Subject::Getattr(key));
        Ok(Holder::Pending(now))
    }

    /// A call has used the holder's answer: the change attribute that it shows. The holder reports
    /// the same value after each of its changes (§10.4.3).
    pub(crate) fn use_answer(
        &mut self,
        file: &FileKey,
        by: Option<ClientKey>,
        own: u64,
        reported: u64,
    ) -> u64 {
        let Some(key) = self.other_holder(file, by) else { return own.max(reported) };
        let Kind::Delegation(delegation) = &mut self.states[key].kind else {
            unreachable!("the entry is a delegation")
        };
        if let Some(answer) = &mut delegation.answer {
            answer.is_used = true;
        }
        if reported > own && !(mutant("change-of-holder-stays") && delegation.shown_change > 0) {
            delegation.shown_change = reported.max(delegation.shown_change + 1);
        }
        own.max(delegation.shown_change)
    }

    pub(crate) fn write_delegations_ended(&self) -> Arc<AtomicU64> {
        self.write_delegations_ended.clone()
    }

    pub(crate) fn has_pending_getattr(&self, file: &FileKey, by: Option<ClientKey>) -> bool {
        self.other_holder(file, by).is_some_and(|key| self.delegation_of(key).question.is_some())
    }

    fn other_holder(&self, file: &FileKey, by: Option<ClientKey>) -> Option<StateKey> {
        if self.delegation_count == 0 {
            return None;
        }
        self.write_delegation(self.files.find(file)?).filter(|&key| !self.is_of(key, by, file))
    }

    pub(in crate::state) fn write_delegation(&self, file: FileRef) -> Option<StateKey> {
        self.files[file].delegations.first().copied().filter(|&key| self.delegation_of(key).write)
    }

    /// O(n) in the smaller of the client's and the file's states.
    pub(in crate::state) fn has_delegation(&self, client: ClientKey, file: FileRef) -> bool {
        let (own, of_file) = (&self.clients[client].delegations, &self.files[file].delegations);
        match own.len() < of_file.len() {
            true => own.iter().any(|&key| self.states[key].file == file),
            false => of_file.iter().any(|&key| self.states[key].client == client),
        }
    }

    /// A client treats two paths of a file as two files with separate caches.
    pub(in crate::state) fn is_of(
        &self,
        key: StateKey,
        client: Option<ClientKey>,
        file: &FileKey,
    ) -> bool {
        let entry = &self.states[key];
        Some(entry.client) == client && entry.export == file.export
    }

    /// The holder keeps the access time and, with `modify`, the change time. Errors: BAD_STATEID
    /// (RFC 9754 §5).
    pub(crate) fn check_times_delegation(
        &mut self,
        client: Option<ClientKey>,
        stateid: &Stateid,
        file: &FileKey,
        modify: bool,
        now: u64,
    ) -> Result<(), Status> {
        let key = self.resolve(client, stateid, file, now)?;
        match &self.states[key].kind {
            Kind::Delegation(delegation) if delegation.times && (delegation.write || !modify) => {
                Ok(())
            }
            _ => Err(Status::BAD_STATEID),
        }
    }

    pub(in crate::state) fn note_holder_attributes(
        &mut self,
        key: StateKey,
        attributes: Option<HolderAttributes>,
        now: u64,
    ) {
        let Some(entry) = self.states.get_mut(key) else { return };
        let Kind::Delegation(delegation) = &mut entry.kind else { return };
        let Some(question) = delegation.question.take() else { return };
        match attributes {
            Some(attributes) => {
                let answer =
                    HolderAnswer { question, answered_ms: now, attributes, is_used: false };
                delegation.answer = Some(answer);
            }
            None => self.recall(key, false, now),
        }
    }
}
