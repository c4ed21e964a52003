use super::credential::{Credential, Family};
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

#[derive(Clone, Copy, Default)]
pub(in crate::state) struct NameRecords {
    pub(in crate::state) confirmed: Option<ClientKey>,
    pub(in crate::state) unconfirmed: Option<ClientKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Lease {
    Active,
    Courtesy { since_ms: u64 },
}

pub(in crate::state) struct Client {
    pub(in crate::state) id: ClientId,
    pub(in crate::state) owner: Arc<[u8]>,
    pub(in crate::state) verifier: Verifier,
    pub(in crate::state) principal: Principal,
    /// Name of the certificate of the machine that made the record under AUTH_SYS.
    pub(in crate::state) machine: Option<Arc<str>>,
    pub(in crate::state) address: IpAddr,
    pub(in crate::state) source: Source,
    pub(in crate::state) source_key: SourceKey,
    pub(in crate::state) confirmed: bool,
    pub(in crate::state) lease: Lease,
    pub(in crate::state) renewed_ms: u64,
    pub(in crate::state) connection: Option<ConnectionId>,
    pub(in crate::state) running: u32,
    pub(in crate::state) flags: SequenceFlags,
    pub(in crate::state) open_owners: Map<Arc<[u8]>, OwnerKey>,
    pub(in crate::state) lock_owners: Map<Arc<[u8]>, OwnerKey>,
    pub(in crate::state) owners_refused: u32,
    pub(in crate::state) delegations: Set<StateKey>,
    /// Of [`Self::delegations`].
    pub(in crate::state) directory_delegations: usize,
    pub(in crate::state) revoked: Set<StateKey>,
    pub(in crate::state) copies: Vec<StateKey>,
    pub(in crate::state) opens: usize,
    pub(in crate::state) locks: usize,
    pub(in crate::state) locked: usize,
    pub(in crate::state) waiters: usize,
    pub(in crate::state) awaited_files: BTreeSet<FileRef>,
    pub(in crate::state) callbacks: u32,
    pub(in crate::state) callback_queue: VecDeque<CallbackKey>,
    pub(in crate::state) may_reclaim: bool,
    /// The client gets no state and no record until grace ends.
    pub(in crate::state) has_other_address: bool,
    pub(in crate::state) recorded: bool,
    pub(in crate::state) version: VersionState,
}

pub(in crate::state) enum VersionState {
    V40(V40),
    V41(Box<V41>),
}

pub(in crate::state) struct V40 {
    pub(in crate::state) confirm: Verifier,
    pub(in crate::state) callback: Callback40,
    pub(in crate::state) pending: Option<(Verifier, Callback40)>,
    pub(in crate::state) path: CallbackPath,
    pub(in crate::state) opens_by: BTreeMap<PrincipalDigest, usize>,
}

pub(in crate::state) type PrincipalDigest = Option<[u8; blake3::OUT_LEN]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Callback40 {
    pub address: Option<SocketAddr>,
    pub netid: Box<[u8]>,
    pub universal_address: Box<[u8]>,
    pub program: u32,
    pub ident: u32,
}

impl Callback40 {
    pub(in crate::state) fn unknown() -> Self {
        Callback40 {
            address: None,
            netid: Box::default(),
            universal_address: Box::default(),
            program: 0,
            ident: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum CallbackPath {
    Unknown,
    Up,
    Down,
}

pub(in crate::state) struct V41 {
    pub(in crate::state) sessions: Vec<SessionKey>,
    pub(in crate::state) next: CreateSeq,
    /// One-slot reply cache (RFC 8881 §18.36.4).
    pub(in crate::state) last: Option<CreateSessionOk>,
    pub(in crate::state) protection: Protection,
    pub(in crate::state) reclaim_complete: bool,
    /// See [`State::start_over`](crate::state::tables::State::start_over).
    pub(in crate::state) reclaims_again: bool,
    pub(in crate::state) implementation: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) enum Protection {
    None,
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

#[derive(Clone, Debug)]
pub(in crate::state) struct BackParms {
    pub(in crate::state) minor: u32,
    pub(in crate::state) attrs: ChannelAttrs,
    pub(in crate::state) program: u32,
    pub(in crate::state) credential: Option<CallbackCredential>,
    pub(in crate::state) life: Option<Arc<dyn ContextLife>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum BackContext {
    Lasts,
    Ends,
    Ended,
}

impl BackParms {
    pub(in crate::state) fn context(&self, lease_ms: u64) -> BackContext {
        match self.life.as_ref().map(|life| life.left_ms()) {
            Some(0) => BackContext::Ended,
            Some(left_ms) if left_ms <= lease_ms => BackContext::Ends,
            Some(_) | None => BackContext::Lasts,
        }
    }
}

impl Client {
    pub(in crate::state) fn has_state(&self) -> bool {
        self.opens > 0 || self.locks > 0 || !self.delegations.is_empty() || !self.copies.is_empty()
    }

    pub(in crate::state) fn has_state_to_lose(&self) -> bool {
        let has_sessions = self.v41().is_some_and(|v41| !v41.sessions.is_empty());
        self.lease == Lease::Active && (self.has_state() || has_sessions)
    }

    pub(in crate::state) fn is_of_machine(&self, credential: Credential<'_>) -> bool {
        self.machine.is_none() || self.machine.as_deref() == credential.machine
    }

    /// After a restart of the server, only this principal may continue under the client's name.
    pub(in crate::state) fn recorded_principal(&self) -> ClientPrincipal {
        self.machine.as_deref().map_or_else(|| self.client_principal(), ClientPrincipal::of_machine)
    }

    pub(in crate::state) fn client_principal(&self) -> ClientPrincipal {
        ClientPrincipal::of(
            &self.principal,
            self.v41().is_some_and(|v41| v41.protection != Protection::None),
        )
    }

    pub(in crate::state) fn family(&self) -> Family {
        match self.version {
            VersionState::V40(_) => Family::V40,
            VersionState::V41(_) => Family::V41,
        }
    }

    pub(in crate::state) fn v40(&mut self) -> Option<&mut V40> {
        match &mut self.version {
            VersionState::V40(v40) => Some(v40),
            VersionState::V41(_) => None,
        }
    }

    pub(in crate::state) fn v41(&self) -> Option<&V41> {
        match &self.version {
            VersionState::V40(_) => None,
            VersionState::V41(v41) => Some(v41),
        }
    }

    pub(in crate::state) fn v41_mut(&mut self) -> Option<&mut V41> {
        match &mut self.version {
            VersionState::V40(_) => None,
            VersionState::V41(v41) => Some(v41),
        }
    }

    pub(in crate::state) fn owners(&mut self, kind: OwnerKind) -> &mut Map<Arc<[u8]>, OwnerKey> {
        match kind {
            OwnerKind::Open => &mut self.open_owners,
            OwnerKind::Lock => &mut self.lock_owners,
        }
    }

    pub(in crate::state) fn owner_count(&self) -> usize {
        self.open_owners.len() + self.lock_owners.len()
    }

    #[inline]
    pub(in crate::state) fn renew(&mut self, now: u64) {
        self.renewed_ms = self.renewed_ms.max(now);
        self.lease = Lease::Active;
    }
}
