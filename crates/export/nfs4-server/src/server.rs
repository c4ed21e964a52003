use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use vouch_nfs4::Verifier;

pub(crate) mod administration;
pub(crate) mod export_change;
pub(crate) mod local_changes;
pub(crate) mod removed_files;
pub(crate) mod search_limit;
pub(crate) mod status;
pub(crate) mod write_verifier;

use crate::access::admission;
use crate::compound::reply_cache::ReplyCache;
use crate::connection::TransportVerdict;
use crate::filehandle::HandleCodec;
use crate::files::open_handle::{AnonymousOpens, CloseQueue, LostOpen, OpenHandle, end_lost};
use crate::pseudo_fs::Tree;
use crate::state::{
    AccessWithoutOpen, ClientKey, DelegationPolicy, FileKey, RecoveryRecord, State, StateConfig,
    StateEffect, Totals,
};
use crate::{
    CallbackContexts, CallbackId, Config, Connection, ConnectionId, Effect, ErrorReport, Exports,
    Identity, Now, Observer, Principal, Recovered, StatusReport, Transport, Unreachable, callback,
};
use local_changes::LocalChanges;
use search_limit::LastSearch;
use write_verifier::SyncTracker;

pub struct Server {
    config: Config,
    tree: RwLock<Arc<Tree>>,
    ending: Mutex<()>,
    identity: Arc<dyn Identity>,
    observer: Arc<dyn Observer>,
    handles: HandleCodec,
    state: Mutex<State<OpenHandle>>,
    write_delegations_ended: Arc<AtomicU64>,
    answered: Condvar,
    awaiting: AtomicU32,
    reply_cache: ReplyCache,
    anonymous: AnonymousOpens,
    connections: AtomicU64,
    peers: Mutex<HashMap<ConnectionId, SocketAddr>>,
    callback_xids: AtomicU32,
    record_orders: AtomicU64,
    sync_tracker: SyncTracker,
    errors: Mutex<VecDeque<ErrorReport>>,
    callback_contexts: OnceLock<Arc<dyn CallbackContexts>>,
    now: Mutex<Now>,
    local_changes: Arc<LocalChanges>,
    last_search: Mutex<LastSearch>,
}

pub struct Tick {
    pub effects: Vec<Effect>,
    /// Latest time for the next call, monotonic clock.
    pub next_due_ms: u64,
}

/// After this wait GETATTR answers DELAY.
pub(crate) const HOLDER_WAIT_MS: u64 = 100;
const HOLDER_WAITERS_MAX: u32 = 4;
const ERRORS_MAX: usize = 64;

impl Server {
    /// `recovered`: content of the recovery store; `seed`: from the system's randomness.
    pub fn new(
        config: Config,
        exports: Exports,
        identity: Arc<dyn Identity>,
        observer: Arc<dyn Observer>,
        recovered: Recovered,
        seed: [u8; 32],
        now: Now,
    ) -> Self {
        // Clients of unreadable records cannot reclaim.
        let records: Vec<RecoveryRecord> = recovered
            .records
            .iter()
            .filter_map(|(key, value)| RecoveryRecord::from_bytes(key, value).ok())
            .collect();
        let state = StateConfig {
            lease_ms: config.lease_ms,
            grace_ms: config.grace_ms,
            boot: config.boot,
            delegations: if config.delegations {
                DelegationPolicy::OnReuse
            } else {
                DelegationPolicy::Never
            },
            limits: config.limits.clone(),
        };
        let state = State::new(state, &records, seed, now.mono_ms);
        Server {
            tree: RwLock::new(Arc::new(Tree::new(&exports, 0, config.boot, now.wall))),
            ending: Mutex::new(()),
            identity,
            observer,
            handles: HandleCodec::new(config.filehandle_key),
            write_delegations_ended: state.write_delegations_ended(),
            state: Mutex::new(state),
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
            local_changes: Arc::default(),
            last_search: Mutex::default(),
            config,
        }
    }

    /// Call it at most once.
    pub fn set_callback_contexts(&self, contexts: Arc<dyn CallbackContexts>) {
        self.state.lock().set_callback_contexts(contexts.clone());
        let set = self.callback_contexts.set(contexts);
        debug_assert!(set.is_ok(), "callback contexts are set once");
    }

    pub(crate) fn may_call_back_with(&self, from_server: &[u8], principal: &Principal) -> bool {
        self.callback_contexts
            .get()
            .is_some_and(|contexts| contexts.is_usable(from_server, principal))
    }

    pub fn connection_opened(&self, peer: SocketAddr) -> Arc<Connection> {
        let id = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed));
        self.peers.lock().insert(id, peer);
        Arc::new(Connection::new(id, peer))
    }

    /// Every export of the client demands a stronger transport: answer AUTH_TOOWEAK.
    pub fn is_transport_too_weak(&self, connection: &Connection, now: Now) -> bool {
        if connection.transport() == Transport::MutualTls {
            return false;
        }
        let generation = self.generation();
        let mut known = connection.transport_verdict().lock();
        if let Some(known) = *known
            && known.generation == generation
            && now.mono_ms.saturating_sub(known.made_ms) < admission::AGE_MS_MAX
        {
            return known.is_too_weak;
        }
        let tree = self.tree();
        let is_too_weak = tree.is_too_weak(connection.transport(), connection.peer());
        *known = Some(TransportVerdict {
            is_too_weak,
            generation: tree.generation,
            made_ms: now.mono_ms,
        });
        is_too_weak
    }

    pub fn connection_closed(&self, connection: &Connection, now: Now) -> Vec<Effect> {
        connection.close();
        self.peers.lock().remove(&connection.id());
        let mut effects = Vec::new();
        self.with_state(&mut effects, now.mono_ms, |state| {
            state.connection_closed(connection.id())
        });
        *self.now.lock() = now;
        effects
    }

    /// With the upper export. Clients reach them through the pseudo file system.
    pub fn exports_without_directory(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.tree().exports_without_directory().to_vec()
    }

    pub fn tick(&self, now: Now) -> Tick {
        *self.now.lock() = now;
        let mut effects = Vec::new();
        let mut releases = CloseQueue::default();
        self.anonymous
            .clean(now.mono_ms)
            .into_iter()
            .for_each(|open| releases.add(open, &mut effects));
        releases.end(&mut effects);
        let next_due_ms = loop {
            let next_due_ms =
                self.with_state(&mut effects, now.mono_ms, |state| state.tick(now.mono_ms));
            if next_due_ms > now.mono_ms {
                break next_due_ms;
            }
        };
        Tick { effects, next_due_ms }
    }

    /// Recalls the delegations of directories that local programs have changed. Call it often.
    pub fn recall_locally_changed(&self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        for directory in self.local_changes.take() {
            self.with_state(&mut effects, now.mono_ms, |state| {
                // Nobody waits for the answer.
                let name = AccessWithoutOpen::Name;
                let _ = state.recall_for_access(&directory, None, name, now.mono_ms);
            });
        }
        effects
    }

    pub(crate) fn local_changes(&self) -> &Arc<LocalChanges> {
        &self.local_changes
    }

    pub fn callback_reply(
        &self,
        id: CallbackId,
        answer: Result<&[u8], Unreachable>,
        now: Now,
    ) -> Vec<Effect> {
        let answer = match answer {
            Ok(record) => callback::answer(record),
            Err(Unreachable::Peer) => crate::state::CallbackAnswer::Unreachable,
            Err(Unreachable::Context) => crate::state::CallbackAnswer::NoContext,
        };
        let mut effects = Vec::new();
        self.with_state(&mut effects, now.mono_ms, |state| {
            state.callback_done(id, answer, now.mono_ms)
        });
        self.answered.notify_all();
        effects
    }

    /// Attributes that were read under an earlier value may lack what a holder wrote back.
    pub(crate) fn write_delegations_ended(&self) -> u64 {
        self.write_delegations_ended.load(Ordering::Acquire)
    }

    /// Few calls wait; the others answer DELAY.
    pub(crate) fn await_holder(&self, file: &FileKey, by: Option<ClientKey>) {
        if self.awaiting.fetch_add(1, Ordering::Relaxed) < HOLDER_WAITERS_MAX {
            let mut state = self.state.lock();
            self.answered.wait_while_for(
                &mut state,
                |state| state.has_pending_getattr(file, by),
                Duration::from_millis(HOLDER_WAIT_MS),
            );
        }
        self.awaiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Calls that ask a holder get DELAY at once: a simulation has no other thread.
    #[cfg(feature = "testing")]
    pub fn never_await_holders(&self) {
        self.awaiting.store(HOLDER_WAITERS_MAX, Ordering::Relaxed);
    }

    pub fn status(&self, now: Now) -> StatusReport {
        let mut report = self.state.lock().status(now.mono_ms);
        let peers = self.peers.lock();
        for client in &mut report.clients {
            client.peer = client.connection.and_then(|id| peers.get(&id).copied());
        }
        drop(peers);
        report.recent_errors = self.errors.lock().iter().cloned().collect();
        report
    }

    pub fn totals(&self, now: Now) -> (Totals, u64) {
        let state = self.state.lock();
        (state.totals(), state.grace_left_ms(now.mono_ms))
    }

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

    pub(crate) fn delegates(&self) -> bool {
        self.config.delegations
    }

    /// Changes at each start and after each failed sync (RFC 8881 §18.32.3). WRITE replies have the
    /// value from before the write, COMMIT replies the one from after it.
    pub(crate) fn write_verifier(&self) -> Verifier {
        if vouch_vfs::mutant("verifier-survives-restart") {
            return Verifier([7; 8]);
        }
        // Keeps the values distinct, and far from those of the next start.
        let losses = self.sync_tracker.losses().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Verifier((self.config.boot ^ losses).to_be_bytes())
    }

    pub(crate) fn sync_tracker(&self) -> &SyncTracker {
        &self.sync_tracker
    }

    /// Effects are encoded and files closed after the lock is released.
    #[inline]
    pub(crate) fn with_state<R>(
        &self,
        effects: &mut Vec<Effect>,
        now_ms: u64,
        act: impl FnOnce(&mut State<OpenHandle>) -> R,
    ) -> R {
        let (result, taken, first) = {
            let mut state = self.state.lock();
            let result = act(&mut state);
            let taken = if state.has_effects() { state.take_effects() } else { VecDeque::new() };
            let first = if taken.is_empty() {
                0
            } else {
                self.record_orders.fetch_add(taken.len() as u64, Ordering::Relaxed)
            };
            (result, taken, first)
        };
        let mut releases = CloseQueue::default();
        for (order, effect) in (first..).zip(taken) {
            match effect {
                StateEffect::Callback(outgoing) => {
                    let xid = self.callback_xids.fetch_add(1, Ordering::Relaxed);
                    effects.push(callback::encode(&outgoing, xid, &self.handles));
                }
                StateEffect::Persist { key, value } => {
                    effects.push(Effect::Persist { key, value, order })
                }
                StateEffect::Forget { key } => effects.push(Effect::Forget { key, order }),
                StateEffect::GraceEnded => effects.push(Effect::GraceEnded),
                StateEffect::AddressMismatch { owner, address, from } => {
                    effects.push(Effect::AddressMismatch { name: owner, address, from })
                }
                StateEffect::RecallOverdue { owner, address, file, waited_ms, is_revoked } => {
                    effects.push(Effect::RecallOverdue {
                        name: owner,
                        address,
                        export: self.export_source(file.export),
                        file: file
                            .file
                            .as_bytes()
                            .iter()
                            .map(|byte| format!("{byte:02x}"))
                            .collect(),
                        waited_ms,
                        is_revoked,
                    })
                }
                StateEffect::ClientEnded { owner, address, why } => {
                    effects.push(Effect::ClientEnded { name: owner, address, why })
                }
                StateEffect::NameConflict { owner, holder, refused, has_ended } => {
                    effects.push(Effect::NameConflict { name: owner, holder, refused, has_ended })
                }
                StateEffect::Release(open) => releases.add(open, effects),
                StateEffect::Ended { file, delegation, why } => {
                    let observer = self.observer.clone();
                    end_lost(
                        LostOpen::new(file, delegation, why, now_ms, observer),
                        &mut releases,
                        effects,
                    );
                }
            }
        }
        releases.end(effects);
        result
    }

    fn export_source(&self, id: crate::ExportId) -> Arc<str> {
        let tree = self.tree();
        let found =
            tree.sites().find(|site| site.export.id == id).map(|site| site.export.source.clone());
        found.unwrap_or_else(|| "an export that is gone".into())
    }

    pub(crate) fn record_error(&self, report: ErrorReport) {
        let mut errors = self.errors.lock();
        if errors.len() >= ERRORS_MAX {
            errors.pop_front();
        }
        errors.push_back(report);
    }
}
