//! State: clients, sessions, stateids, opens, byte-range locks, delegations, copies, leases, grace.
//!
//! Pure machines: `now` (milliseconds of a monotonic clock) is a parameter, randomness is a seed,
//! an open file is an opaque `F` that is kept for the operations and handed back. Nothing here does
//! I/O, sleeps, encodes an XDR result or looks at a file system. All of it lives behind one lock,
//! which the operations hold for one call at a time and never across `vfs`. What must happen
//! outside (callbacks, records, files to close) is queued as [`StateEffect`]s, to be taken with
//! [`State::take_effects`] under the same lock and carried out after it is released.
//!
//! | operation | calls |
//! |---|---|
//! | EXCHANGE_ID | [`State::exchange_id`] |
//! | CREATE_SESSION, DESTROY_SESSION | [`State::create_session`], [`State::destroy_session`] |
//! | BIND_CONN_TO_SESSION, BACKCHANNEL_CTL | [`State::bind_connection`], [`State::backchannel_ctl`] |
//! | SEQUENCE, end of the compound | [`State::sequence`], [`State::finish`] |
//! | DESTROY_CLIENTID, RECLAIM_COMPLETE | [`State::destroy_client`], [`State::reclaim_complete`] |
//! | SETCLIENTID, SETCLIENTID_CONFIRM, RENEW | [`State::set_client`], [`State::confirm_client`], [`State::renew`] |
//! | any operation of 4.0 that names a client id | [`State::client_of_40`] |
//! | any operation of 4.0 with an owner's seqid | [`State::owner_turn`] or [`State::owner_turn_by_state`] first, [`State::owner_done`] last |
//! | any operation of 4.0 with a stateid | [`State::heard_by`] before |
//! | OPEN | [`State::check_open`], then the file is opened or made, then [`State::open`] |
//! | OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE | [`State::confirm_open`], [`State::downgrade`], [`State::close`] |
//! | READ, WRITE, SETATTR of size, SEEK, COPY, … | [`State::io`] gives the open file for a stateid |
//! | LOCK, LOCKT, LOCKU, RELEASE_LOCKOWNER | [`State::lock`], [`State::test_lock`], [`State::unlock`], [`State::release_lock_owner`] |
//! | SETATTR, REMOVE, RENAME, LINK, WRITE without open | [`State::touch`]: recalls what conflicts |
//! | GETATTR of size, change or times | [`State::delegated_attributes`] |
//! | DELEGRETURN, DELEGPURGE, WANT_DELEGATION | [`State::return_delegation`], [`State::purge_delegations`], [`State::want_delegation`] |
//! | TEST_STATEID, FREE_STATEID | [`State::test_stateid`], [`State::free_stateid`] |
//! | COPY, OFFLOAD_STATUS, OFFLOAD_CANCEL | [`State::copy_begin`] …, [`State::copy_status`], [`State::copy_cancel`] |
//! | any operation under SP4_MACH_CRED | [`State::enforce`], [`State::machine_operations`] |

mod ask;
mod backchannel;
mod client;
mod client_end;
mod client_principal;
mod copy;
mod create_session;
mod delegation;
mod effect;
mod entry;
mod exchange_id;
mod expiry;
mod export_end;
mod file;
mod file_locks;
mod file_opens;
mod grace;
mod hash;
mod id;
mod limits;
mod lock;
mod open;
mod opener;
mod overlaps;
mod owner;
mod protection;
mod quota;
mod range;
mod recall_any;
mod recovery;
mod report;
mod session;
mod setclientid;
mod share;
mod slab;
mod slots;
mod stateids;
#[cfg(test)]
mod tests;
mod wait;

use std::collections::VecDeque;
use std::sync::Arc;

use vouch_nfs4::ClientId;

pub use crate::access::network::Network;
pub use client::{Callback40, Credential, Family};
pub use client_principal::ClientPrincipal;
pub use copy::CopyProgress;
pub use delegation::{Granted, Holder, Touch, Want};
pub use effect::{CallbackAnswer, CallbackCredential, CallbackOp, CallbackSequence, HolderAttributes, Loss, OutgoingCallback, StateEffect};
pub use entry::{OwnerKind, OwnerReply, Terms};
pub use exchange_id::Introduced;
pub use export_end::{HOLDINGS_AT_ONCE, Holding};
pub use id::{ClientKey, FileKey, OwnerKey, SessionKey, StateKey};
pub use lock::{Denied, LockBy, LockCall, LockError};
pub use open::{Claim, Extra, OpenCall, OpenPlan, Opened};
pub use opener::known_as;
pub use owner::{OwnerToken, OwnerTurn};
pub use range::{Mode, Range};
pub use recovery::RecoveryRecord;
pub use report::{ClientStatus, DelegationStatus, LockStatus, OpenStatus, SessionStatus, StateStatus, Totals};
pub use session::{SequenceCall, Sequenced, Turn};
pub use setclientid::SetClientError;
pub use share::Share;
pub use stateids::{Io, IoGrant};

use crate::{CallbackContexts, ConnectionId, Limits};

/// When delegations are given that no client asked for. One that is asked for is given whenever
/// nothing speaks against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationPolicy {
    /// None at all.
    Never,
    /// When a client opens a file again that it had open a short while ago.
    OnReuse,
    /// With the first open.
    Always,
}

/// What state must be told of the configuration.
#[derive(Clone, Debug)]
pub struct StateConfig {
    /// How long a client may be silent, milliseconds.
    pub lease_ms: u64,
    /// How long reclaims are let in after a start, milliseconds; at least a lease.
    pub grace_ms: u64,
    /// Differs at each start.
    pub boot: u64,
    /// Delegations.
    pub delegations: DelegationPolicy,
    /// Limits.
    pub limits: Limits,
}

/// All state.
pub struct State<F> {
    config: StateConfig,
    boot: id::Boot,
    random: id::Random,
    hasher: hash::Seed,
    clients: slab::Slab<ClientKey, client::Client>,
    client_ids: hash::Map<ClientId, ClientKey>,
    names_40: hash::Map<Arc<[u8]>, client::Named>,
    names_41: hash::Map<Arc<[u8]>, client::Named>,
    numbers: id::ClientNumbers,
    sessions: slab::Slab<SessionKey, session::Session>,
    connections: hash::Map<ConnectionId, Vec<SessionKey>>,
    /// Bytes of slots and of replies kept for retries.
    reply_cache_len: usize,
    /// Bytes promised to compounds under way, whose replies are to be kept.
    reply_cache_reserved: usize,
    owners: slab::Slab<OwnerKey, entry::Owner>,
    files: file::Files,
    states: slab::Slab<StateKey, entry::Entry<F>>,
    open_count: usize,
    /// Byte ranges locked, and files with lock owners.
    lock_count: usize,
    /// Files with lock owners, each.
    locked_count: usize,
    copy_count: usize,
    delegation_count: usize,
    /// When holders of many delegations may be asked for some again.
    recall_any_after_ms: u64,
    callbacks: slab::Slab<id::CallbackKey, backchannel::Callback>,
    /// Says how long contexts last that protect callbacks.
    contexts: Option<Arc<dyn CallbackContexts>>,
    sources: quota::SourceTable,
    unconfirmed_count: usize,
    clients_displaced: u64,
    clients_refused: u64,
    grace: grace::Grace,
    timers: expiry::Timers,
    effects: VecDeque<StateEffect<F>>,
    /// The last time that was told.
    latest_ms: u64,
}

impl<F: Clone> State<F> {
    /// State of a server that starts now. `recovered`: the records of the life before; those that
    /// can't be read have been reported and left out by the caller.
    pub fn new(config: StateConfig, recovered: &[RecoveryRecord], seed: [u8; 32], now: u64) -> Self {
        let mut random = id::Random::new(seed);
        let hasher = hash::Seed(random.number());
        let numbers = id::ClientNumbers::new(&seed, config.boot);
        let grace = grace::Grace::new(recovered, config.grace_ms, now, hasher);
        let mut state = State {
            boot: id::Boot::new(config.boot, &seed),
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
            recall_any_after_ms: 0,
            callbacks: slab::Slab::new(),
            contexts: None,
            sources: quota::SourceTable::new(hasher),
            unconfirmed_count: 0,
            clients_displaced: 0,
            clients_refused: 0,
            grace,
            timers: expiry::Timers::default(),
            effects: VecDeque::new(),
            latest_ms: now,
        };
        match state.grace.until_ms() {
            Some(until) => state.timers.set(until, expiry::Timer::Grace),
            None if !recovered.is_empty() => state.effects.push_back(StateEffect::GraceEnded),
            None => {}
        }
        state
    }

    /// What is to be done outside, in order. To be asked after each call, under the same lock.
    pub fn take_effects(&mut self) -> VecDeque<StateEffect<F>> {
        std::mem::take(&mut self.effects)
    }

    /// Whether there is anything to be done outside.
    #[inline]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }
}
