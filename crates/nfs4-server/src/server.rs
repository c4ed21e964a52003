//! The server: what a driver holds and calls.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use vouch_nfs4::Verifier;

pub(crate) mod export_change;
pub(crate) mod status;
pub(crate) mod write_verifier;

use crate::compound::reply_cache::ReplyCache;
use crate::filehandle::HandleCodec;
use crate::files::open_handle::{AnonymousOpens, CloseQueue, OpenHandle};
use crate::pseudo_fs::Tree;
use crate::state::{ClientKey, DelegationPolicy, FileKey, RecoveryRecord, State, StateConfig, StateEffect, Totals};
use crate::{
    CallbackContexts, CallbackId, Config, Connection, ConnectionId, Effect, ErrorReport, Exports, Identity, Now, Observer, Principal,
    Recovered, StatusReport, Unreachable, callback,
};
use write_verifier::SyncTracker;

/// An NFSv4 server.
pub struct Server {
    config: Config,
    tree: RwLock<Arc<Tree>>,
    /// What ends by the exports ends by those that are in force.
    ending: Mutex<()>,
    identity: Arc<dyn Identity>,
    observer: Arc<dyn Observer>,
    handles: HandleCodec,
    state: Mutex<State<OpenHandle>>,
    /// Rung when a callback was answered.
    answered: Condvar,
    /// Calls that wait for it.
    awaiting: AtomicU32,
    reply_cache: ReplyCache,
    anonymous: AnonymousOpens,
    connections: AtomicU64,
    /// Where each connection leads, for the report.
    peers: Mutex<HashMap<ConnectionId, SocketAddr>>,
    callback_xids: AtomicU32,
    /// Numbers given to effects that change records.
    record_orders: AtomicU64,
    sync_tracker: SyncTracker,
    errors: Mutex<VecDeque<ErrorReport>>,
    callback_contexts: OnceLock<Arc<dyn CallbackContexts>>,
    /// The last moment that the driver told, for what has no moment of its own.
    now: Mutex<Now>,
}

/// What the passing of time brought.
pub struct Tick {
    /// To be carried out.
    pub effects: Vec<Effect>,
    /// When to call again at the latest, by the monotonic clock.
    pub next_due_ms: u64,
}

/// How long a GETATTR waits for the holder of a write delegation before it answers DELAY,
/// milliseconds: a round trip to a client that is well. No call waits for a question that is older.
pub(crate) const HOLDER_WAIT_MS: u64 = 100;
/// How many may wait so at once: a few of the threads that may sleep.
const HOLDER_WAITERS_MAX: u32 = 4;
/// Errors that are kept for the report.
const ERRORS_MAX: usize = 64;

impl Server {
    /// A server that starts now. `recovered` is what the recovery store held, `seed` comes from the
    /// system's randomness.
    pub fn new(
        config: Config,
        exports: Exports,
        identity: Arc<dyn Identity>,
        observer: Arc<dyn Observer>,
        recovered: Recovered,
        seed: [u8; 32],
        now: Now,
    ) -> Self {
        // Records that can't be read are those of another version, or damaged: their clients can't reclaim.
        let records: Vec<RecoveryRecord> =
            recovered.records.iter().filter_map(|(key, value)| RecoveryRecord::from_bytes(key, value).ok()).collect();
        let state = StateConfig {
            lease_ms: config.lease_ms,
            grace_ms: config.grace_ms,
            boot: config.boot,
            delegations: if config.delegations { DelegationPolicy::OnReuse } else { DelegationPolicy::Never },
            limits: config.limits.clone(),
        };
        Server {
            tree: RwLock::new(Arc::new(Tree::new(&exports, 0, config.boot, now.wall))),
            ending: Mutex::new(()),
            identity,
            observer,
            handles: HandleCodec::new(config.filehandle_key),
            state: Mutex::new(State::new(state, &records, seed, now.mono_ms)),
            answered: Condvar::new(),
            awaiting: AtomicU32::new(0),
            reply_cache: ReplyCache::default(),
            anonymous: AnonymousOpens::default(),
            connections: AtomicU64::new(1),
            peers: Mutex::default(),
            callback_xids: AtomicU32::new(1),
            record_orders: AtomicU64::new(1),
            sync_tracker: SyncTracker::default(),
            errors: Mutex::default(),
            callback_contexts: OnceLock::new(),
            now: Mutex::new(now),
            config,
        }
    }

    /// Lets clients have their callbacks protected by these contexts. Once.
    pub fn set_callback_contexts(&self, contexts: Arc<dyn CallbackContexts>) {
        self.state.lock().set_callback_contexts(contexts.clone());
        let set = self.callback_contexts.set(contexts);
        debug_assert!(set.is_ok(), "a server's driver is one");
    }

    /// Whether callbacks can be protected by a context of this name for this principal.
    pub(crate) fn calls_back_by(&self, from_server: &[u8], principal: &Principal) -> bool {
        self.callback_contexts.get().is_some_and(|contexts| contexts.is_usable(from_server, principal))
    }

    /// A client has connected.
    pub fn connection_opened(&self, peer: SocketAddr) -> Arc<Connection> {
        let id = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed));
        self.peers.lock().insert(id, peer);
        Arc::new(Connection::new(id, peer))
    }

    /// A connection is gone. Its calls that are still running go on; their replies are lost.
    pub fn connection_closed(&self, connection: &Connection, now: Now) -> Vec<Effect> {
        connection.close();
        self.peers.lock().remove(&connection.id());
        let mut effects = Vec::new();
        self.with_state(&mut effects, now.mono_ms, |state| state.connection_closed(connection.id()));
        *self.now.lock() = now;
        effects
    }

    /// Exports that lie below others in which no directory leads to them, and those others, by
    /// their sources: clients go through directories that are made up.
    pub fn detours(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.tree().detours().to_vec()
    }

    /// Time has passed: leases, time-outs of delegations, end of grace.
    pub fn tick(&self, now: Now) -> Tick {
        *self.now.lock() = now;
        self.anonymous.clean(now.mono_ms);
        let mut effects = Vec::new();
        // Where much is due, others have their turn in between.
        let next_due_ms = loop {
            let next_due_ms = self.with_state(&mut effects, now.mono_ms, |state| state.tick(now.mono_ms));
            if next_due_ms > now.mono_ms {
                break next_due_ms;
            }
        };
        Tick { effects, next_due_ms }
    }

    /// A callback was answered, or can't be.
    pub fn callback_reply(&self, id: CallbackId, answer: Result<&[u8], Unreachable>, now: Now) -> Vec<Effect> {
        let answer = match answer {
            Ok(record) => callback::answer(record),
            Err(Unreachable::Peer) => crate::state::CallbackAnswer::Unreachable,
            Err(Unreachable::Context) => crate::state::CallbackAnswer::NoContext,
        };
        let mut effects = Vec::new();
        self.with_state(&mut effects, now.mono_ms, |state| state.callback_done(id, answer, now.mono_ms));
        self.answered.notify_all();
        effects
    }

    /// Waits until the holder of a write delegation that is being asked about `file` has answered,
    /// but not long, and not with many others: what waits here has a thread. Whoever is not let
    /// wait must not ask again soon either, and answers DELAY.
    pub(crate) fn await_holder(&self, file: &FileKey, by: Option<ClientKey>) {
        if self.awaiting.fetch_add(1, Ordering::Relaxed) < HOLDER_WAITERS_MAX {
            let mut state = self.state.lock();
            self.answered.wait_while_for(&mut state, |state| state.is_asked(file, by), Duration::from_millis(HOLDER_WAIT_MS));
        }
        self.awaiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// What there is to tell. O(n) in all state, under its lock: for a person who asks now and
    /// then.
    pub fn status(&self, now: Now) -> StatusReport {
        let status = self.state.lock().status(now.mono_ms);
        let mut report = {
            let peers = self.peers.lock();
            status::of_state(&status, |id| peers.get(&id).copied())
        };
        report.grace_left_ms = status.grace_left_ms;
        report.recent_errors = self.errors.lock().iter().cloned().collect();
        report
    }

    /// How much there is of each kind, and the milliseconds until the grace period ends. O(1), for
    /// those who ask often.
    pub fn totals(&self, now: Now) -> (Totals, u64) {
        let state = self.state.lock();
        (state.totals(), state.grace_left_ms(now.mono_ms))
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn tree(&self) -> Arc<Tree> {
        self.tree.read().clone()
    }

    pub(crate) fn identity(&self) -> &dyn Identity {
        &*self.identity
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    pub(crate) fn handles(&self) -> &HandleCodec {
        &self.handles
    }

    pub(crate) fn reply_cache(&self) -> &ReplyCache {
        &self.reply_cache
    }

    pub(crate) fn anonymous(&self) -> &AnonymousOpens {
        &self.anonymous
    }

    pub(crate) fn forget_anonymous(&self, file: &FileKey) {
        self.anonymous.forget(file);
    }

    /// Whether there can be delegations at all.
    pub(crate) fn delegates(&self) -> bool {
        self.config.delegations
    }

    /// RFC 8881, section 18.32.3: differs at each start, and after each failure to make data
    /// durable. An answer to a WRITE has the one from before it, an answer to a COMMIT the one
    /// from after it.
    pub(crate) fn write_verifier(&self) -> Verifier {
        // Odd, so that no two counts of one start come to the same; and large, so that the next starts' are
        // far away.
        let losses = self.sync_tracker.losses().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Verifier((self.config.boot ^ losses).to_be_bytes())
    }

    /// Who makes data durable, and whether that has failed.
    pub(crate) fn sync_tracker(&self) -> &SyncTracker {
        &self.sync_tracker
    }

    /// Does something to the state under its lock. What is to be done outside is encoded after the
    /// lock is released; files that are not needed any more are closed then.
    #[inline]
    pub(crate) fn with_state<R>(&self, effects: &mut Vec<Effect>, now_ms: u64, act: impl FnOnce(&mut State<OpenHandle>) -> R) -> R {
        let (result, taken, first) = {
            let mut state = self.state.lock();
            let result = act(&mut state);
            let taken = if state.has_effects() { state.take_effects() } else { VecDeque::new() };
            // Under the lock, so that the numbers have the order in which the state changed.
            let first = if taken.is_empty() { 0 } else { self.record_orders.fetch_add(taken.len() as u64, Ordering::Relaxed) };
            (result, taken, first)
        };
        let mut releases = CloseQueue::default();
        for (order, effect) in (first..).zip(taken) {
            match effect {
                StateEffect::Callback(outgoing) => {
                    let xid = self.callback_xids.fetch_add(1, Ordering::Relaxed);
                    effects.push(callback::encode(&outgoing, xid, &self.handles));
                }
                StateEffect::Persist { key, value } => effects.push(Effect::Persist { key, value, order }),
                StateEffect::Forget { key } => effects.push(Effect::Forget { key, order }),
                StateEffect::GraceEnded => effects.push(Effect::GraceEnded),
                StateEffect::Elsewhere { owner, address, from } => effects.push(Effect::Elsewhere { name: owner, address, from }),
                StateEffect::Release(open) => releases.add(open, effects),
                StateEffect::Lost { file, delegation, why } => {
                    file.tell_lost(self.observer(), delegation, why, now_ms);
                    releases.add(file, effects);
                }
            }
        }
        releases.end(effects);
        result
    }

    /// Keeps an error for the report.
    pub(crate) fn keep_error(&self, report: ErrorReport) {
        let mut errors = self.errors.lock();
        if errors.len() >= ERRORS_MAX {
            errors.pop_front();
        }
        errors.push_back(report);
    }
}
