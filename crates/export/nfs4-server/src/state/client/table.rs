use super::credential::{Credential, Family};
use super::record::{Client, Lease, NameRecords, VersionState};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use vouch_nfs4::op::SequenceFlags;
use vouch_nfs4::{ClientId, Status, Verifier};

use crate::ConnectionId;
use crate::access::network::Network;
use crate::state::client::principal::ClientPrincipal;
use crate::state::effect::StateEffect;
use crate::state::hash::{Map, Set};
use crate::state::id::ClientKey;
use crate::state::quota::Source;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    pub(in crate::state) fn names(&mut self, family: Family) -> &mut Map<Arc<[u8]>, NameRecords> {
        match family {
            Family::V40 => &mut self.names_40,
            Family::V41 => &mut self.names_41,
        }
    }

    pub(in crate::state) fn named(&mut self, family: Family, owner: &[u8]) -> NameRecords {
        self.names(family).get(owner).copied().unwrap_or_default()
    }

    /// Errors: DELAY if the table is full and no record can be evicted.
    pub(in crate::state) fn add_client(
        &mut self,
        owner: &[u8],
        verifier: Verifier,
        credential: Credential<'_>,
        version: VersionState,
        now: u64,
    ) -> Result<ClientKey, Status> {
        let source = Source::of(&credential);
        self.make_room_for_client(&source, owner, credential.address, now)?;
        let family = match version {
            VersionState::V40(_) => Family::V40,
            VersionState::V41(_) => Family::V41,
        };
        let id = self.numbers.issue();
        let owner: Arc<[u8]> = owner.into();
        let awaited = self
            .grace
            .awaits_from(family, &owner)
            .filter(|from| *from != Network::of(credential.address));
        if let Some(from) = awaited {
            self.effects.push_back(StateEffect::AddressMismatch {
                owner: owner.clone(),
                address: credential.address,
                from,
            });
        }
        let hasher = self.hasher;
        let client = Client {
            id,
            owner: owner.clone(),
            verifier,
            principal: credential.principal.clone(),
            machine: credential.machine_of_sys(),
            source_key: self.sources.add_client(&source),
            address: credential.address,
            source,
            confirmed: false,
            lease: Lease::Active,
            renewed_ms: now,
            connection: None,
            running: 0,
            flags: SequenceFlags(0),
            open_owners: Map::with_hasher(hasher),
            lock_owners: Map::with_hasher(hasher),
            owners_refused: 0,
            delegations: Set::with_hasher(hasher),
            directory_delegations: 0,
            revoked: Set::with_hasher(hasher),
            copies: Vec::new(),
            opens: 0,
            locks: 0,
            locked: 0,
            waiters: 0,
            awaited_files: BTreeSet::new(),
            callbacks: 0,
            callback_queue: Default::default(),
            may_reclaim: awaited.is_none() && self.grace.may_reclaim(family, &owner, verifier),
            has_other_address: awaited.is_some(),
            recorded: false,
            version,
        };
        let key = self.clients.insert(client);
        self.client_ids.insert(id, key);
        self.names(family).entry(owner).or_default().unconfirmed = Some(key);
        self.unconfirmed_count += 1;
        self.watch_lease(key, now);
        Ok(key)
    }

    pub(in crate::state) fn confirm_record(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        if !client.confirmed {
            client.confirmed = true;
            self.unconfirmed_count -= 1;
        }
        let (family, owner) = (client.family(), client.owner.clone());
        let named = self.names(family).entry(owner).or_default();
        debug_assert!(named.confirmed.is_none(), "the former record was removed");
        *named = NameRecords { confirmed: Some(key), unconfirmed: None };
        // A client that restarted after its recovery record cannot reclaim.
        let client = &self.clients[key];
        if !client.may_reclaim
            && !client.has_other_address
            && self.grace.completed(family, &client.owner.clone())
        {
            self.end_grace();
        }
    }

    /// CLID_INUSE if the client comes from another address while the former instance holds state,
    /// because AUTH_SYS proves no identity, or without the certificate of the former instance.
    pub(in crate::state) fn check_restart(
        &self,
        before: ClientKey,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let client = &self.clients[before];
        let is_same = client.source == Source::of(&credential) && client.is_of_machine(credential);
        if client.has_state_to_lose() && !is_same { Err(Status::CLID_INUSE) } else { Ok(()) }
    }

    /// A cloned machine repeats its attempt for ever: without a report nobody learns the cause.
    pub(in crate::state) fn note_name_conflict(
        &mut self,
        holder: ClientKey,
        refused: IpAddr,
    ) -> Status {
        let client = &self.clients[holder];
        self.note_conflict_with(client.owner.clone(), Some(client.address), refused, false)
    }

    /// `holder`: `None` for a client from before the restart of the server.
    pub(in crate::state) fn note_conflict_with(
        &mut self,
        owner: Arc<[u8]>,
        holder: Option<IpAddr>,
        refused: IpAddr,
        has_ended: bool,
    ) -> Status {
        self.effects.push_back(StateEffect::NameConflict { owner, holder, refused, has_ended });
        self.name_conflicts += 1;
        Status::CLID_INUSE
    }

    pub(in crate::state) fn check_confirmation(
        &mut self,
        key: ClientKey,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let client = &self.clients[key];
        if client.confirmed {
            return Ok(());
        }
        let names = match client.family() {
            Family::V40 => &self.names_40,
            Family::V41 => &self.names_41,
        };
        let before = names.get(&client.owner).and_then(|named| named.confirmed);
        let Some(before) = before else { return Ok(()) };
        self.check_restart(before, credential)
            .map_err(|_| self.note_name_conflict(before, credential.address))
    }

    pub(in crate::state) fn client_by_id(&self, id: ClientId) -> Option<ClientKey> {
        self.client_ids.get(&id).copied()
    }

    pub(crate) fn name_of(&self, key: ClientKey) -> Option<Arc<[u8]>> {
        self.clients.get(key).map(|client| client.owner.clone())
    }

    pub(crate) fn note_connection(&mut self, id: ClientId, connection: ConnectionId) {
        if let Some(key) = self.client_by_id(id) {
            self.clients[key].connection = Some(connection);
        }
    }

    /// DEADSESSION if the client ended during the COMPOUND.
    #[inline]
    pub(in crate::state) fn client(&mut self, key: ClientKey) -> Result<&mut Client, Status> {
        self.clients.get_mut(key).ok_or(Status::DEADSESSION)
    }

    /// The recovery record must exist before the client acquires state (RFC 8881 §8.4.2.1).
    pub(in crate::state) fn record(&mut self, key: ClientKey, revoked: bool) {
        let client = &mut self.clients[key];
        if client.has_other_address && self.grace.is_active() {
            return;
        }
        client.recorded = true;
        let record = crate::state::RecoveryRecord {
            family: client.family(),
            owner: client.owner.to_vec(),
            verifier: client.verifier,
            revoked,
            creator: client.recorded_principal(),
            from: (!matches!(client.recorded_principal(), ClientPrincipal::Proven { .. }))
                .then(|| Network::of(client.address)),
        };
        let (record_key, value) = record.to_bytes();
        self.effects.push_back(StateEffect::Persist { key: record_key, value });
    }
}
