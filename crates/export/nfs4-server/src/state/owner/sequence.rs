//! Sequence numbers of owners in 4.0 (RFC 7530 §9.1.7).

use vouch_nfs4::{OwnerSeq, Stateid, Status};

use crate::state::client::credential::Family;
use crate::state::effect::Loss;
use crate::state::hash::Map;
use crate::state::id::{ClientKey, OwnerKey, StateKey};
use crate::state::limits::{OWNER_REPLY_LEN_MAX, OWNER_SCAN_INTERVAL, OWNERS_PER_CLIENT_MAX};
use crate::state::quota::{Resource, within_share};
use crate::state::slab::Ended;
use crate::state::stateid::entry::{Kind, Owner, OwnerKind, OwnerReply, Sequencer};
use crate::state::tables::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnerTurn {
    New(OwnerToken),
    Replay(OwnerReply),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerToken {
    owner: OwnerKey,
    seq: OwnerSeq,
}

impl<F: Clone> State<F> {
    pub(in crate::state) fn owner(
        &mut self,
        client: ClientKey,
        kind: OwnerKind,
        name: &[u8],
    ) -> Result<OwnerKey, Status> {
        let hasher = self.hasher;
        let record = self.client(client)?;
        if let Some(&owner) = record.owners(kind).get(name) {
            return Ok(owner);
        }
        let (family, source_key) = (record.family(), record.source_key);
        if !self.room_for_owner(client)? {
            return Err(table_full_status(family, kind));
        }
        let record = self.client(client)?;
        let sequencer = (record.family() == Family::V40).then(Box::default);
        let name: std::sync::Arc<[u8]> = name.into();
        let owner = self.owners.insert(Owner {
            client,
            kind,
            name: name.clone(),
            states: Map::with_hasher(hasher),
            sequencer,
        });
        self.clients[client].owners(kind).insert(name, owner);
        self.sources.usage_mut(source_key).owners += 1;
        Ok(owner)
    }

    pub(in crate::state) fn room_for_owner(&mut self, client: ClientKey) -> Result<bool, Status> {
        let (source, owners_max) = (self.client(client)?.source_key, self.config.limits.owners_max);
        let within_client_limit =
            |state: &Self| state.clients[client].owner_count() < OWNERS_PER_CLIENT_MAX;
        let own = self.sources.usage(source).owners;
        let has_room =
            within_client_limit(self) && within_share(own, 1, self.owners.len(), owners_max);
        Ok(has_room
            || self.drop_idle_owners(client) && within_client_limit(self)
            || within_client_limit(self)
                && self.make_room_for_state(client, Resource::Owners, owners_max, |state| {
                    state.owners.len()
                }))
    }

    pub(in crate::state) fn find_owner(
        &mut self,
        client: ClientKey,
        kind: OwnerKind,
        name: &[u8],
    ) -> Option<OwnerKey> {
        self.clients.get_mut(client)?.owners(kind).get(name).copied()
    }

    pub(in crate::state) fn drop_owner(&mut self, key: OwnerKey) {
        let Some(owner) = self.owners.remove(key, Ended::Freed) else { return };
        debug_assert!(owner.states.is_empty(), "an owner is removed after its states");
        if let Some(closed) = owner.sequencer.as_ref().and_then(|sequencer| sequencer.closed) {
            self.states.remove(closed, Ended::Freed);
        }
        if let Some(client) = self.clients.get_mut(owner.client) {
            client.owners(owner.kind).remove(&owner.name);
            self.sources.usage_mut(client.source_key).owners -= 1;
        }
    }

    pub(in crate::state) fn remove_owner_if_idle(&mut self, key: OwnerKey) {
        let owner = &self.owners[key];
        if owner.states.is_empty() && owner.sequencer.is_none() {
            self.drop_owner(key);
        }
    }

    /// §9.1.10. O(n) in owners of the client, so rate-limited.
    fn drop_idle_owners(&mut self, client: ClientKey) -> bool {
        let record = &mut self.clients[client];
        if record.family() != Family::V40 {
            return false;
        }
        record.owners_refused = record.owners_refused.wrapping_add(1);
        if record.owners_refused % OWNER_SCAN_INTERVAL != 1 {
            return false;
        }
        let record = &self.clients[client];
        let idle = |&owner: &OwnerKey| {
            let owner = &self.owners[owner];
            owner.states.is_empty()
                && owner.sequencer.as_deref().is_none_or(|sequencer| !sequencer.busy)
        };
        let owners: Vec<OwnerKey> = record
            .open_owners
            .values()
            .chain(record.lock_owners.values())
            .copied()
            .filter(idle)
            .collect();
        let any = !owners.is_empty();
        owners.into_iter().for_each(|owner| self.drop_owner(owner));
        if any {
            self.clients[client].owners_refused = 0;
        }
        any
    }

    /// OPEN. The next number is new, the last one is a retry, and any number starts a new owner.
    /// BAD_SEQID otherwise, DELAY while a call is in progress.
    ///
    /// A client that reclaims holds no state of this server. If the server still has some, the client
    /// was at another server in between, and its owner starts over.
    pub(crate) fn owner_turn(
        &mut self,
        client: ClientKey,
        name: &[u8],
        seq: OwnerSeq,
        reclaims: bool,
    ) -> Result<OwnerTurn, Status> {
        let key = self.owner(client, OwnerKind::Open, name)?;
        let owner = &self.owners[key];
        let sequencer = owner.sequencer.as_deref().ok_or(Status::SERVERFAULT)?;
        // An unconfirmed owner may start over with any number and loses its opens (§16.18.5). An
        // owner without opens may repeat the number: clients that got SYMLINK use it elsewhere.
        let follows =
            seq == sequencer.last && !owner.states.is_empty() || seq == sequencer.last.next();
        if sequencer.begun && (!sequencer.confirmed || reclaims) && !sequencer.busy && !follows {
            self.restart_owner(key);
        }
        self.turn(key, seq)
    }

    /// OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE, LOCK, LOCKU.
    pub(crate) fn owner_turn_by_state(
        &mut self,
        stateid: &Stateid,
        seq: OwnerSeq,
        now: u64,
    ) -> Result<OwnerTurn, Status> {
        let Some(key) = self.boot.key(stateid).filter(|_| !stateid.is_special()) else {
            return Err(if stateid.is_special() {
                Status::BAD_STATEID
            } else {
                Status::STALE_STATEID
            });
        };
        let entry = match self.states.get(key) {
            Some(entry) => entry,
            None => return Err(self.status_of_removed(key)),
        };
        let owner = match &entry.kind {
            Kind::Open(open) => open.owner,
            Kind::Lock(lock) => lock.owner,
            Kind::Closed(owner) => *owner,
            Kind::Delegation(_) | Kind::Revoked | Kind::Copy(_) => return Err(Status::BAD_STATEID),
        };
        let client = entry.client;
        let turn = self.turn(owner, seq)?;
        self.clients[client].renew(now);
        Ok(turn)
    }

    fn turn(&mut self, key: OwnerKey, seq: OwnerSeq) -> Result<OwnerTurn, Status> {
        let sequencer = self.owners[key].sequencer.as_deref_mut().ok_or(Status::BAD_STATEID)?;
        if sequencer.busy {
            return Err(Status::DELAY);
        }
        if sequencer.begun && seq == sequencer.last {
            return Ok(OwnerTurn::Replay(sequencer.reply.clone()));
        }
        if sequencer.begun && seq != sequencer.last.next() {
            return Err(Status::BAD_SEQID);
        }
        sequencer.busy = true;
        Ok(OwnerTurn::New(OwnerToken { owner: key, seq }))
    }

    fn restart_owner(&mut self, key: OwnerKey) {
        let states: Vec<StateKey> = self.owners[key].states.values().copied().collect();
        for state in states {
            self.drop_open(state, Ended::Freed, Some(Loss::Restarted));
        }
        if let Some(sequencer) = self.owners[key].sequencer.as_deref_mut() {
            let closed = sequencer.closed.take();
            *sequencer = Sequencer::default();
            if let Some(closed) = closed {
                self.states.remove(closed, Ended::Freed);
            }
        }
    }

    /// The number advances except after the errors of §9.1.7.
    pub(crate) fn owner_done(&mut self, token: &OwnerToken, status: Status, reply: OwnerReply) {
        let Some(owner) = self.owners.get_mut(token.owner) else { return };
        let Some(sequencer) = owner.sequencer.as_deref_mut() else { return };
        sequencer.busy = false;
        // Failing calls could otherwise fill the table (§16.18.5).
        if !status.is_ok() && !sequencer.confirmed && owner.states.is_empty() {
            return self.drop_owner(token.owner);
        }
        let unmoved = [
            Status::STALE_CLIENTID,
            Status::STALE_STATEID,
            Status::BAD_STATEID,
            Status::BAD_SEQID,
            Status::BADXDR,
            Status::RESOURCE,
            Status::NOFILEHANDLE,
            Status::MOVED,
        ];
        if unmoved.contains(&status) {
            return;
        }
        sequencer.begun = true;
        sequencer.last = token.seq;
        sequencer.reply = match reply.bytes.len() <= OWNER_REPLY_LEN_MAX {
            true => reply,
            false => OwnerReply::default(),
        };
        let closed_now = reply_op_closes(&sequencer.reply);
        if !closed_now && let Some(closed) = sequencer.closed.take() {
            self.states.remove(closed, Ended::Freed);
        }
    }
}

/// 4.1 has no RESOURCE, and LOCK has no NOSPC.
pub(in crate::state) fn table_full_status(family: Family, kind: OwnerKind) -> Status {
    match (family, kind) {
        (Family::V40, _) => Status::RESOURCE,
        (Family::V41, OwnerKind::Open) => Status::NOSPC,
        (Family::V41, OwnerKind::Lock) => Status::DELAY,
    }
}

fn reply_op_closes(reply: &OwnerReply) -> bool {
    reply.op == vouch_nfs4::op::Op::CLOSE.0
}
