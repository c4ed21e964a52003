use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use vouch_nfs4::ClientId;

use super::callback::record::Callback;
use super::client::record::{Client, NameRecords};
use super::effect::StateEffect;
use super::id::{ClientKey, OwnerKey, SessionKey, StateKey};
use super::lease::timers::{Timer, Timers};
use super::recovery::grace::Grace;
use super::recovery::record::RecoveryRecord;
use super::session::record::Session;
use super::stateid::entry::{Entry, Owner};
use super::{file, hash, id, quota, slab};
use crate::{CallbackContexts, ConnectionId, Limits};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DelegationPolicy {
    Never,
    /// The client opens a file again after a short time.
    OnReuse,
    Always,
}

#[derive(Clone, Debug)]
pub(crate) struct StateConfig {
    pub lease_ms: u64,
    pub grace_ms: u64,
    pub boot: u64,
    pub delegations: DelegationPolicy,
    pub limits: Limits,
}

pub(crate) struct State<F> {
    pub(super) config: StateConfig,
    pub(super) boot: id::StateidIssuer,
    pub(super) random: id::Random,
    pub(super) hasher: hash::Seed,
    pub(super) clients: slab::Slab<ClientKey, Client>,
    pub(super) client_ids: hash::Map<ClientId, ClientKey>,
    pub(super) names_40: hash::Map<Arc<[u8]>, NameRecords>,
    pub(super) names_41: hash::Map<Arc<[u8]>, NameRecords>,
    pub(super) numbers: id::ClientNumbers,
    pub(super) sessions: slab::Slab<SessionKey, Session>,
    pub(super) connections: hash::Map<ConnectionId, Vec<SessionKey>>,
    pub(super) reply_cache_len: usize,
    pub(super) reply_cache_reserved: usize,
    pub(super) owners: slab::Slab<OwnerKey, Owner>,
    pub(super) files: file::Files,
    pub(super) states: slab::Slab<StateKey, Entry<F>>,
    pub(super) open_count: usize,
    pub(super) lock_count: usize,
    pub(super) locked_count: usize,
    pub(super) copy_count: usize,
    pub(super) delegation_count: usize,
    /// Of [`Self::delegation_count`].
    pub(super) directory_delegation_count: usize,
    /// Only grows, and is read without the state's lock.
    pub(super) write_delegations_ended: Arc<AtomicU64>,
    pub(super) recall_any_after_ms: u64,
    pub(super) callbacks: slab::Slab<id::CallbackKey, Callback>,
    pub(super) contexts: Option<Arc<dyn CallbackContexts>>,
    pub(super) sources: quota::SourceTable,
    pub(super) unconfirmed_count: usize,
    pub(super) clients_displaced: u64,
    pub(super) clients_refused: u64,
    pub(super) is_draining: bool,
    pub(super) name_conflicts: u64,
    pub(super) delegations_revoked: u64,
    pub(super) grace: Grace,
    pub(super) timers: Timers,
    pub(super) effects: VecDeque<StateEffect<F>>,
    pub(super) latest_ms: u64,
}

impl<F: Clone> State<F> {
    pub(crate) fn new(
        config: StateConfig,
        recovered: &[RecoveryRecord],
        seed: [u8; 32],
        now: u64,
    ) -> Self {
        let mut random = id::Random::new(seed);
        let hasher = hash::Seed(random.number());
        let numbers = id::ClientNumbers::new(&seed, config.boot);
        let grace = Grace::new(recovered, config.grace_ms, now, hasher);
        let mut state = State {
            boot: id::StateidIssuer::new(config.boot, &seed),
            config,
            random,
            hasher,
            clients: slab::Slab::new(),
            client_ids: hash::Map::with_hasher(hasher),
            names_40: hash::Map::with_hasher(hasher),
            names_41: hash::Map::with_hasher(hasher),
            numbers,
            sessions: slab::Slab::new(),
            connections: hash::Map::with_hasher(hasher),
            reply_cache_len: 0,
            reply_cache_reserved: 0,
            owners: slab::Slab::new(),
            files: file::Files::new(hasher),
            states: slab::Slab::new(),
            open_count: 0,
            lock_count: 0,
            locked_count: 0,
            copy_count: 0,
            delegation_count: 0,
            directory_delegation_count: 0,
            write_delegations_ended: Arc::default(),
            recall_any_after_ms: 0,
            callbacks: slab::Slab::new(),
            contexts: None,
            sources: quota::SourceTable::new(hasher),
            unconfirmed_count: 0,
            clients_displaced: 0,
            clients_refused: 0,
            is_draining: false,
            name_conflicts: 0,
            delegations_revoked: 0,
            grace,
            timers: Timers::default(),
            effects: VecDeque::new(),
            latest_ms: now,
        };
        match state.grace.until_ms() {
            Some(until) => state.timers.set(until, Timer::Grace),
            None if !recovered.is_empty() => state.effects.push_back(StateEffect::GraceEnded),
            None => {}
        }
        state
    }

    pub(crate) fn take_effects(&mut self) -> VecDeque<StateEffect<F>> {
        std::mem::take(&mut self.effects)
    }

    #[inline]
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }
}
