//! Records of clients.

use super::credential::Family;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vouch_nfs4::op::{ChannelAttrs, CreateSessionOk, SequenceFlags};
use vouch_nfs4::{Bitmap, ClientId, CreateSeq, StateProtectOps, Verifier};

use crate::state::OwnerKind;
use crate::state::client::principal::ClientPrincipal;
use crate::state::effect::CallbackCredential;
use crate::state::hash::{Map, Set};
use crate::state::id::{CallbackKey, ClientKey, FileRef, OwnerKey, SessionKey, StateKey};
use crate::state::quota::{Source, SourceKey};
use crate::{ConnectionId, ContextLife, Principal};

/// The records of one name: at most one confirmed, and one that may replace it.
#[derive(Clone, Copy, Default)]
pub(in crate::state) struct Named {
    pub(in crate::state) confirmed: Option<ClientKey>,
    pub(in crate::state) unconfirmed: Option<ClientKey>,
}

/// Whether a client may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Lease {
    /// It was heard of within the lease.
    Active,
    /// It was not; its state lives until it is in somebody's way.
    Courtesy { since_ms: u64 },
}

/// A client.
pub(in crate::state) struct Client {
    pub(in crate::state) id: ClientId,
    pub(in crate::state) owner: Arc<[u8]>,
    pub(in crate::state) verifier: Verifier,
    pub(in crate::state) principal: Principal,
    /// Where it introduced itself from, or has moved to.
    pub(in crate::state) address: IpAddr,
    /// Whose quota its records count against.
    pub(in crate::state) source: Source,
    pub(in crate::state) source_key: SourceKey,
    pub(in crate::state) confirmed: bool,
    pub(in crate::state) lease: Lease,
    pub(in crate::state) renewed_ms: u64,
    /// Where it introduced itself or, in 4.0, renewed its lease.
    pub(in crate::state) connection: Option<ConnectionId>,
    /// Compounds under way: while there are any, the lease does not end.
    pub(in crate::state) running: u32,
    /// Flags for SEQUENCE that are the client's, not a session's.
    pub(in crate::state) flags: SequenceFlags,
    pub(in crate::state) open_owners: Map<Arc<[u8]>, OwnerKey>,
    pub(in crate::state) lock_owners: Map<Arc<[u8]>, OwnerKey>,
    /// New owners for which there was no room, since there last was.
    pub(in crate::state) owners_refused: u32,
    pub(in crate::state) delegations: Set<StateKey>,
    /// Delegations that were revoked and not yet freed.
    pub(in crate::state) revoked: Set<StateKey>,
    pub(in crate::state) copies: Vec<StateKey>,
    pub(in crate::state) opens: usize,
    /// Byte ranges locked.
    pub(in crate::state) locks: usize,
    /// Files with lock owners, each.
    pub(in crate::state) locked: usize,
    pub(in crate::state) waiters: usize,
    /// Files where it waits for locks, and some where it has waited.
    pub(in crate::state) waits_at: BTreeSet<FileRef>,
    /// Callbacks queued or under way.
    pub(in crate::state) callbacks: u32,
    /// Those that wait for a path or a slot, oldest first.
    pub(in crate::state) callback_queue: VecDeque<CallbackKey>,
    /// Whether the recovery records let it reclaim.
    pub(in crate::state) may_reclaim: bool,
    /// Whether it came from elsewhere than the one for whom what was held under its name waited:
    /// until grace is over it can have no state, and no record.
    pub(in crate::state) elsewhere: bool,
    /// Whether it has a recovery record of this life.
    pub(in crate::state) recorded: bool,
    pub(in crate::state) dialect: Dialect,
}

/// What differs between the worlds.
pub(in crate::state) enum Dialect {
    V40(V40),
    V41(Box<V41>),
}

/// A client of 4.0.
pub(in crate::state) struct V40 {
    pub(in crate::state) confirm: Verifier,
    pub(in crate::state) callback: Callback40,
    /// A change of callback that waits for its confirmation.
    pub(in crate::state) pending: Option<(Verifier, Callback40)>,
    pub(in crate::state) path: Path40,
    /// Opens of each principal.
    pub(in crate::state) opens_by: BTreeMap<Who, usize>,
}

/// A principal that was proven, by its digest; none: those that were not.
pub(in crate::state) type Who = Option<[u8; blake3::OUT_LEN]>;

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
    pub(in crate::state) fn unknown() -> Self {
        Callback40 { address: None, netid: Box::default(), universal_address: Box::default(), program: 0, ident: 0 }
    }
}

/// Whether callbacks of 4.0 get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Path40 {
    Unknown,
    Up,
    Down,
}

/// A client of 4.1 or later.
pub(in crate::state) struct V41 {
    pub(in crate::state) sessions: Vec<SessionKey>,
    /// The number that the next CREATE_SESSION must have.
    pub(in crate::state) next: CreateSeq,
    /// What the last one was answered (RFC 8881, section 18.36.4: a slot of its own).
    pub(in crate::state) last: Option<CreateSessionOk>,
    pub(in crate::state) protection: Protection,
    pub(in crate::state) reclaim_complete: bool,
    pub(in crate::state) implementation: Option<Box<str>>,
}

/// State protection in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) enum Protection {
    None,
    /// By the credential of the machine, which is the record's principal.
    Machine(StateProtectOps),
}

impl Protection {
    pub(in crate::state) fn enforces(&self, op: u32) -> bool {
        matches!(self, Protection::Machine(ops) if ops.must_enforce.has(op))
    }

    pub(in crate::state) fn allowed(&self) -> Bitmap {
        match self {
            Protection::None => Bitmap::EMPTY,
            Protection::Machine(ops) => ops.must_allow,
        }
    }
}

/// What hangs on a session of the back channel.
#[derive(Clone, Debug)]
pub(in crate::state) struct BackParms {
    /// Minor version that the client speaks: callbacks are in the same.
    pub(in crate::state) minor: u32,
    pub(in crate::state) attrs: ChannelAttrs,
    pub(in crate::state) program: u32,
    /// None if nothing that the client offered can be spoken: then the session has no back channel.
    pub(in crate::state) credential: Option<CallbackCredential>,
    /// How long its context lasts; none if it has none.
    pub(in crate::state) life: Option<Arc<dyn ContextLife>>,
}

/// What is to be told of the context that protects a session's callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum BackContext {
    /// There is none that could end, or it lasts.
    Lasts,
    /// It ends within a lease.
    Ends,
    /// It has ended: nothing can be sent.
    Ended,
}

impl BackParms {
    /// As of now.
    pub(in crate::state) fn context(&self, lease_ms: u64) -> BackContext {
        match self.life.as_ref().map(|life| life.left_ms()) {
            Some(0) => BackContext::Ended,
            Some(left_ms) if left_ms <= lease_ms => BackContext::Ends,
            Some(_) | None => BackContext::Lasts,
        }
    }
}

impl Client {
    /// Whether anything would be lost with it.
    pub(in crate::state) fn has_state(&self) -> bool {
        self.opens > 0 || self.locks > 0 || !self.delegations.is_empty() || !self.copies.is_empty()
    }

    /// Whether it was heard of within the lease and would miss what went with it.
    pub(in crate::state) fn would_lose(&self) -> bool {
        let has_sessions = self.v41().is_some_and(|v41| !v41.sessions.is_empty());
        self.lease == Lease::Active && (self.has_state() || has_sessions)
    }

    /// Who may speak for it, as far as its record is concerned.
    pub(in crate::state) fn client_principal(&self) -> ClientPrincipal {
        ClientPrincipal::of(&self.principal, self.v41().is_some_and(|v41| v41.protection != Protection::None))
    }

    pub(in crate::state) fn family(&self) -> Family {
        match self.dialect {
            Dialect::V40(_) => Family::V40,
            Dialect::V41(_) => Family::V41,
        }
    }

    pub(in crate::state) fn v40(&mut self) -> Option<&mut V40> {
        match &mut self.dialect {
            Dialect::V40(v40) => Some(v40),
            Dialect::V41(_) => None,
        }
    }

    pub(in crate::state) fn v41(&self) -> Option<&V41> {
        match &self.dialect {
            Dialect::V40(_) => None,
            Dialect::V41(v41) => Some(v41),
        }
    }

    pub(in crate::state) fn v41_mut(&mut self) -> Option<&mut V41> {
        match &mut self.dialect {
            Dialect::V40(_) => None,
            Dialect::V41(v41) => Some(v41),
        }
    }

    pub(in crate::state) fn owners(&mut self, kind: OwnerKind) -> &mut Map<Arc<[u8]>, OwnerKey> {
        match kind {
            OwnerKind::Open => &mut self.open_owners,
            OwnerKind::Lock => &mut self.lock_owners,
        }
    }

    /// Open owners and lock owners.
    pub(in crate::state) fn owner_count(&self) -> usize {
        self.open_owners.len() + self.lock_owners.len()
    }

    /// It was heard of.
    #[inline]
    pub(in crate::state) fn renew(&mut self, now: u64) {
        self.renewed_ms = self.renewed_ms.max(now);
        self.lease = Lease::Active;
    }
}
