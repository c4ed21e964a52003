//! Records of clients: who they are, and what hangs on them. How records come and change is in
//! `exchange_id`, `create_session` and `setclientid`, how they go in `expiry`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vouch_nfs4::op::{ChannelAttrs, CreateSessionOk, SequenceFlags};
use vouch_nfs4::{Bitmap, ClientId, CreateSeq, StateProtectOps, Status, Verifier};

use super::client_principal::ClientPrincipal;
use super::effect::{CallbackCredential, StateEffect};
use super::hash::{Map, Set};
use super::id::{CallbackKey, ClientKey, FileRef, OwnerKey, SessionKey, StateKey};
use super::quota::{Source, SourceKey};
use super::{OwnerKind, State};
use crate::access::network::Network;
use crate::{ConnectionId, ContextLife, Flavour, Principal};

/// Who sends a call.
#[derive(Clone, Copy, Debug)]
pub struct Credential<'a> {
    /// Who.
    pub principal: &'a Principal,
    /// How that is proven.
    pub flavour: Flavour,
    /// From where.
    pub address: IpAddr,
}

/// The two worlds of client ids: names of one mean nothing in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// SETCLIENTID: 4.0.
    V40,
    /// EXCHANGE_ID: 4.1 and later.
    V41,
}

/// The records of one name: at most one confirmed, and one that may replace it.
#[derive(Clone, Copy, Default)]
pub(super) struct Named {
    pub(super) confirmed: Option<ClientKey>,
    pub(super) unconfirmed: Option<ClientKey>,
}

/// Whether a client may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    /// It was heard of within the lease.
    Active,
    /// It was not; its state lives until it is in somebody's way.
    Courtesy { since_ms: u64 },
}

/// A client.
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) owner: Arc<[u8]>,
    pub(super) verifier: Verifier,
    pub(super) principal: Principal,
    /// Where it introduced itself from, or has moved to.
    pub(super) address: IpAddr,
    /// Whose quota its records count against.
    pub(super) source: Source,
    pub(super) source_key: SourceKey,
    pub(super) confirmed: bool,
    pub(super) lease: Lease,
    pub(super) renewed_ms: u64,
    /// Where it introduced itself or, in 4.0, renewed its lease.
    pub(super) connection: Option<ConnectionId>,
    /// Compounds under way: while there are any, the lease does not end.
    pub(super) running: u32,
    /// Flags for SEQUENCE that are the client's, not a session's.
    pub(super) flags: SequenceFlags,
    pub(super) open_owners: Map<Arc<[u8]>, OwnerKey>,
    pub(super) lock_owners: Map<Arc<[u8]>, OwnerKey>,
    /// New owners for which there was no room, since there last was.
    pub(super) owners_refused: u32,
    pub(super) delegations: Set<StateKey>,
    /// Delegations that were revoked and not yet freed.
    pub(super) revoked: Set<StateKey>,
    pub(super) copies: Vec<StateKey>,
    pub(super) opens: usize,
    /// Byte ranges locked.
    pub(super) locks: usize,
    /// Files with lock owners, each.
    pub(super) locked: usize,
    pub(super) waiters: usize,
    /// Files where it waits for locks, and some where it has waited.
    pub(super) waits_at: BTreeSet<FileRef>,
    /// Callbacks queued or under way.
    pub(super) callbacks: u32,
    /// Those that wait for a path or a slot, oldest first.
    pub(super) callback_queue: VecDeque<CallbackKey>,
    /// Whether the recovery records let it reclaim.
    pub(super) may_reclaim: bool,
    /// Whether it came from elsewhere than the one for whom what was held under its name waited:
    /// until grace is over it can have no state, and no record.
    pub(super) elsewhere: bool,
    /// Whether it has a recovery record of this life.
    pub(super) recorded: bool,
    pub(super) dialect: Dialect,
}

/// What differs between the worlds.
pub(super) enum Dialect {
    V40(V40),
    V41(Box<V41>),
}

/// A client of 4.0.
pub(super) struct V40 {
    pub(super) confirm: Verifier,
    pub(super) callback: Callback40,
    /// A change of callback that waits for its confirmation.
    pub(super) pending: Option<(Verifier, Callback40)>,
    pub(super) path: Path40,
    /// Opens of each principal.
    pub(super) opens_by: BTreeMap<Who, usize>,
}

/// A principal that was proven, by its digest; none: those that were not.
pub(super) type Who = Option<[u8; blake3::OUT_LEN]>;

/// Where a client of 4.0 wants its callbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback40 {
    /// Where; none if the address could not be read.
    pub address: Option<SocketAddr>,
    /// Network as the client wrote it.
    pub netid: Box<[u8]>,
    /// Address as the client wrote it.
    pub universal_address: Box<[u8]>,
    /// RPC program.
    pub program: u32,
    /// What callbacks carry.
    pub ident: u32,
}

impl Callback40 {
    /// Of a client that has not come back yet.
    pub(super) fn unknown() -> Self {
        Callback40 { address: None, netid: Box::default(), universal_address: Box::default(), program: 0, ident: 0 }
    }
}

/// Whether callbacks of 4.0 get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path40 {
    Unknown,
    Up,
    Down,
}

/// A client of 4.1 or later.
pub(super) struct V41 {
    pub(super) sessions: Vec<SessionKey>,
    /// The number that the next CREATE_SESSION must have.
    pub(super) next: CreateSeq,
    /// What the last one was answered (RFC 8881, section 18.36.4: a slot of its own).
    pub(super) last: Option<CreateSessionOk>,
    pub(super) protection: Protection,
    pub(super) reclaim_complete: bool,
    pub(super) implementation: Option<Box<str>>,
}

/// State protection in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    None,
    /// By the credential of the machine, which is the record's principal.
    Machine(StateProtectOps),
}

impl Protection {
    pub(super) fn enforces(&self, op: u32) -> bool {
        matches!(self, Protection::Machine(ops) if ops.must_enforce.has(op))
    }

    pub(super) fn allowed(&self) -> Bitmap {
        match self {
            Protection::None => Bitmap::EMPTY,
            Protection::Machine(ops) => ops.must_allow,
        }
    }
}

/// What hangs on a session of the back channel.
#[derive(Clone, Debug)]
pub(super) struct BackParms {
    /// Minor version that the client speaks: callbacks are in the same.
    pub(super) minor: u32,
    pub(super) attrs: ChannelAttrs,
    pub(super) program: u32,
    /// None if nothing that the client offered can be spoken: then the session has no back channel.
    pub(super) credential: Option<CallbackCredential>,
    /// How long its context lasts; none if it has none.
    pub(super) life: Option<Arc<dyn ContextLife>>,
}

/// What is to be told of the context that protects a session's callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackContext {
    /// There is none that could end, or it lasts.
    Lasts,
    /// It ends within a lease.
    Ends,
    /// It has ended: nothing can be sent.
    Ended,
}

impl BackParms {
    /// As of now.
    pub(super) fn context(&self, lease_ms: u64) -> BackContext {
        match self.life.as_ref().map(|life| life.left_ms()) {
            Some(0) => BackContext::Ended,
            Some(left_ms) if left_ms <= lease_ms => BackContext::Ends,
            Some(_) | None => BackContext::Lasts,
        }
    }
}

impl Client {
    /// Whether anything would be lost with it.
    pub(super) fn has_state(&self) -> bool {
        self.opens > 0 || self.locks > 0 || !self.delegations.is_empty() || !self.copies.is_empty()
    }

    /// Whether it was heard of within the lease and would miss what went with it.
    pub(super) fn would_lose(&self) -> bool {
        let has_sessions = self.v41().is_some_and(|v41| !v41.sessions.is_empty());
        self.lease == Lease::Active && (self.has_state() || has_sessions)
    }

    /// Who may speak for it, as far as its record is concerned.
    pub(super) fn client_principal(&self) -> ClientPrincipal {
        ClientPrincipal::of(&self.principal, self.v41().is_some_and(|v41| v41.protection != Protection::None))
    }

    pub(super) fn family(&self) -> Family {
        match self.dialect {
            Dialect::V40(_) => Family::V40,
            Dialect::V41(_) => Family::V41,
        }
    }

    pub(super) fn v40(&mut self) -> Option<&mut V40> {
        match &mut self.dialect {
            Dialect::V40(v40) => Some(v40),
            Dialect::V41(_) => None,
        }
    }

    pub(super) fn v41(&self) -> Option<&V41> {
        match &self.dialect {
            Dialect::V40(_) => None,
            Dialect::V41(v41) => Some(v41),
        }
    }

    pub(super) fn v41_mut(&mut self) -> Option<&mut V41> {
        match &mut self.dialect {
            Dialect::V40(_) => None,
            Dialect::V41(v41) => Some(v41),
        }
    }

    pub(super) fn owners(&mut self, kind: OwnerKind) -> &mut Map<Arc<[u8]>, OwnerKey> {
        match kind {
            OwnerKind::Open => &mut self.open_owners,
            OwnerKind::Lock => &mut self.lock_owners,
        }
    }

    /// Open owners and lock owners.
    pub(super) fn owner_count(&self) -> usize {
        self.open_owners.len() + self.lock_owners.len()
    }

    /// It was heard of.
    #[inline]
    pub(super) fn renew(&mut self, now: u64) {
        self.renewed_ms = self.renewed_ms.max(now);
        self.lease = Lease::Active;
    }
}

impl<F: Clone> State<F> {
    pub(super) fn names(&mut self, family: Family) -> &mut Map<Arc<[u8]>, Named> {
        match family {
            Family::V40 => &mut self.names_40,
            Family::V41 => &mut self.names_41,
        }
    }

    pub(super) fn named(&mut self, family: Family, owner: &[u8]) -> Named {
        self.names(family).get(owner).copied().unwrap_or_default()
    }

    /// Adds an unconfirmed record. DELAY if there are as many clients as may be and none can go.
    pub(super) fn add_client(
        &mut self,
        owner: &[u8],
        verifier: Verifier,
        credential: Credential<'_>,
        dialect: Dialect,
        now: u64,
    ) -> Result<ClientKey, Status> {
        let source = Source::of(&credential);
        self.make_room_for_client(&source, now)?;
        let family = match dialect {
            Dialect::V40(_) => Family::V40,
            Dialect::V41(_) => Family::V41,
        };
        let id = self.numbers.give();
        let owner: Arc<[u8]> = owner.into();
        let awaited = self.grace.awaits_from(family, &owner).filter(|from| *from != Network::of(credential.address));
        if let Some(from) = awaited {
            self.effects.push_back(StateEffect::Elsewhere { owner: owner.clone(), address: credential.address, from });
        }
        let hasher = self.hasher;
        let client = Client {
            id,
            owner: owner.clone(),
            verifier,
            principal: credential.principal.clone(),
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
            revoked: Set::with_hasher(hasher),
            copies: Vec::new(),
            opens: 0,
            locks: 0,
            locked: 0,
            waiters: 0,
            waits_at: BTreeSet::new(),
            callbacks: 0,
            callback_queue: Default::default(),
            may_reclaim: awaited.is_none() && self.grace.may_reclaim(family, &owner, verifier),
            elsewhere: awaited.is_some(),
            recorded: false,
            dialect,
        };
        let key = self.clients.insert(client);
        self.client_ids.insert(id, key);
        self.names(family).entry(owner).or_default().unconfirmed = Some(key);
        self.unconfirmed_count += 1;
        self.watch_lease(key, now);
        Ok(key)
    }

    /// An unconfirmed record becomes the confirmed one of its name.
    pub(super) fn confirm_record(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        if !client.confirmed {
            client.confirmed = true;
            self.unconfirmed_count -= 1;
        }
        let (family, owner) = (client.family(), client.owner.clone());
        let named = self.names(family).entry(owner).or_default();
        debug_assert!(named.confirmed.is_none(), "the record before has been removed");
        *named = Named { confirmed: Some(key), unconfirmed: None };
        // One that has restarted since it held what it could reclaim holds none of it.
        let client = &self.clients[key];
        if !client.may_reclaim && !client.elsewhere && self.grace.completed(family, &client.owner.clone()) {
            self.end_grace();
        }
    }

    /// CLID_INUSE where a client that has restarted, as it says, comes from elsewhere than the one
    /// of its name that would lose by it: under AUTH_SYS anybody says that he is anybody. A
    /// client whose address has changed waits for a lease.
    pub(super) fn check_restart(&self, before: ClientKey, credential: Credential<'_>) -> Result<(), Status> {
        let client = &self.clients[before];
        if client.would_lose() && client.source != Source::of(&credential) { Err(Status::CLID_INUSE) } else { Ok(()) }
    }

    /// The same when the record of one that has restarted is about to be confirmed: the one before
    /// may have been idle when it came.
    pub(super) fn check_confirmation(&self, key: ClientKey, credential: Credential<'_>) -> Result<(), Status> {
        let client = &self.clients[key];
        if client.confirmed {
            return Ok(());
        }
        let names = match client.family() {
            Family::V40 => &self.names_40,
            Family::V41 => &self.names_41,
        };
        let before = names.get(&client.owner).and_then(|named| named.confirmed);
        before.map_or(Ok(()), |before| self.check_restart(before, credential))
    }

    /// The client with this id, whatever its state.
    pub(super) fn client_by_id(&self, id: ClientId) -> Option<ClientKey> {
        self.client_ids.get(&id).copied()
    }

    /// The client with this id called over this connection.
    pub fn called_over(&mut self, id: ClientId, connection: ConnectionId) {
        if let Some(key) = self.client_by_id(id) {
            self.clients[key].connection = Some(connection);
        }
    }

    /// A client by its key; DEADSESSION or EXPIRED if it went while its compound ran.
    #[inline]
    pub(super) fn client(&mut self, key: ClientKey) -> Result<&mut Client, Status> {
        self.clients.get_mut(key).ok_or(Status::DEADSESSION)
    }

    /// Writes the recovery record of a client that has acquired or may acquire state (RFC 8881,
    /// section 8.4.2.1).
    pub(super) fn record(&mut self, key: ClientKey, revoked: bool) {
        let client = &mut self.clients[key];
        if client.elsewhere && self.grace.is_active() {
            return;
        }
        client.recorded = true;
        let record = super::RecoveryRecord {
            family: client.family(),
            owner: client.owner.to_vec(),
            verifier: client.verifier,
            revoked,
            maker: client.client_principal(),
            from: (!matches!(client.principal, Principal::Gss { .. })).then(|| Network::of(client.address)),
        };
        let (record_key, value) = record.to_bytes();
        self.effects.push_back(StateEffect::Persist { key: record_key, value });
    }
}
