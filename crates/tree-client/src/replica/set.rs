//! The replicas of one tree: who they are, their connections, and their scores.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout};
use vouch_tree::HostId;
use vouch_tree::protocol::{FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult, Procedure};
use vouch_xdr::Xdr;

use super::batch::{self, FetchFailure, Queues};
use super::score::{Failure, Moment, ReplicaId, Scores};
use super::status::{CounterCells, ReplicaState, ReplicaStatus};
use super::{CallFailure, Connection};
use crate::connect::Connector;
use crate::witness::{Disbelieved, Doubt, Last, Teller};

/// Replicas of one tree. More addresses than this are not looked at.
const REPLICAS_MAX: usize = 32;

/// Names are resolved again after failures, but not more often than this.
const RESOLVE_INTERVAL_MIN: Duration = Duration::from_secs(15);

/// A replica that takes so many times as long as the fastest is called slow.
const SLOW_FACTOR: u32 = 4;

/// How replicas are reached.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) connect_timeout: Duration,
    pub(crate) seed: u64,
    /// Who is told that one was not believed.
    pub(crate) teller: Option<Teller>,
}

/// A host that may resolve to several replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// One replica.
pub(crate) struct Replica {
    pub(crate) hostid: HostId,
    pub(crate) address: SocketAddr,
    pub(crate) counters: Arc<CounterCells>,
    id: ReplicaId,
    host: String,
    reach: Reach,
    scores: Arc<Mutex<Scores>>,
    epoch: Instant,
    queues: Queues,
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// The certificate and the number of the revision that it has offered; number 0 before the
    /// first.
    revision: Mutex<(u64, u64)>,
    asked: AtomicU64,
    failed: AtomicU64,
    lied: AtomicU64,
    last_error: Mutex<Option<String>>,
    /// What the witness was told of its offers last.
    told: Mutex<Option<Last>>,
}

pub(crate) struct ReplicaSet {
    hostid: HostId,
    locations: Vec<Location>,
    reach: Reach,
    counters: Arc<CounterCells>,
    scores: Arc<Mutex<Scores>>,
    epoch: Instant,
    replicas: RwLock<Vec<Arc<Replica>>>,
    resolved: tokio::sync::Mutex<Option<Instant>>,
    resolve_error: Mutex<String>,
    offers_refused: Mutex<Option<String>>,
}

impl ReplicaSet {
    pub(crate) fn new(hostid: HostId, locations: Vec<Location>, reach: Reach, counters: Arc<CounterCells>) -> Self {
        Self {
            hostid,
            locations,
            reach,
            counters,
            scores: Arc::new(Mutex::new(Scores::new(0))),
            epoch: Instant::now(),
            replicas: RwLock::default(),
            resolved: tokio::sync::Mutex::new(None),
            resolve_error: Mutex::default(),
            offers_refused: Mutex::default(),
        }
    }

    /// Looks the names up, unless that was done a moment ago; new addresses join the set.
    pub(crate) async fn resolve(&self) {
        let mut resolved = self.resolved.lock().await;
        if resolved.is_some_and(|at| at.elapsed() < RESOLVE_INTERVAL_MIN) {
            return;
        }
        let lookups = self.locations.iter().map(|location| async move {
            let lookup = self.reach.connector.resolve(&location.host, location.port);
            (location, timeout(self.reach.connect_timeout, lookup).await)
        });
        for (location, found) in futures_util::future::join_all(lookups).await {
            match found {
                Ok(Ok(addresses)) => addresses.into_iter().for_each(|address| self.add(location, address)),
                Ok(Err(error)) => self.note_resolve_error(format!("{}: {error}", location.host)),
                Err(_) => self.note_resolve_error(format!("{}: the name could not be looked up in time", location.host)),
            }
        }
        // Without any replica there is nothing to wait for.
        *resolved = (self.len() > 0).then(Instant::now);
    }

    fn note_resolve_error(&self, error: String) {
        tracing::warn!(tree = %self.hostid, "resolving replica {error}");
        *self.resolve_error.lock() = error;
    }

    fn add(&self, location: &Location, address: SocketAddr) {
        let mut replicas = self.replicas.write();
        if replicas.len() >= REPLICAS_MAX || replicas.iter().any(|r| r.address == address) {
            return;
        }
        let (queues, ends) = batch::queues();
        let replica = Arc::new(Replica {
            hostid: self.hostid,
            address,
            counters: Arc::clone(&self.counters),
            id: ReplicaId(replicas.len()),
            host: location.host.clone(),
            reach: self.reach.clone(),
            scores: Arc::clone(&self.scores),
            epoch: self.epoch,
            queues,
            connection: tokio::sync::Mutex::new(None),
            revision: Mutex::default(),
            asked: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lied: AtomicU64::new(0),
            last_error: Mutex::new(None),
            told: Mutex::new(None),
        });
        self.scores.lock().grow(replicas.len() + 1);
        tokio::spawn(batch::run(Arc::downgrade(&replica), ends));
        replicas.push(replica);
    }

    pub(crate) fn hostid(&self) -> &HostId {
        &self.hostid
    }

    pub(crate) fn counters(&self) -> &CounterCells {
        &self.counters
    }

    pub(crate) fn scores(&self) -> &Arc<Mutex<Scores>> {
        &self.scores
    }

    pub(crate) fn now(&self) -> Moment {
        self.epoch.elapsed()
    }

    pub(crate) fn len(&self) -> usize {
        self.replicas.read().len()
    }

    pub(crate) fn replica(&self, id: ReplicaId) -> Option<Arc<Replica>> {
        self.replicas.read().get(id.0).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().clone()
    }

    /// Why there are no replicas at all.
    pub(crate) fn resolve_error(&self) -> String {
        self.resolve_error.lock().clone()
    }

    /// Takes note of why every replica's offer was refused when they were last asked; `None` where
    /// one was not.
    pub(crate) fn note_offers_refused(&self, why: Option<String>) {
        *self.offers_refused.lock() = why;
    }

    /// Why every replica's offer was refused.
    pub(crate) fn offers_refused(&self) -> Option<String> {
        self.offers_refused.lock().clone()
    }

    /// Whether each replica lets itself be connected to, and closes when it is asked, again and
    /// again.
    pub(crate) fn all_break_off(&self) -> bool {
        let (replicas, scores) = (self.all(), self.scores.lock());
        !replicas.is_empty() && replicas.iter().all(|replica| scores.breaks_off(replica.id))
    }

    pub(crate) fn status(&self) -> Vec<ReplicaStatus> {
        let (now, replicas) = (self.now(), self.all());
        let newest = replicas.iter().map(|r| *r.revision.lock()).max().unwrap_or_default();
        let scores = self.scores.lock();
        let standings = replicas.iter().map(|r| scores.standing(r.id, now)).filter(|s| !s.set_aside && !s.failing);
        let fastest = standings.filter_map(|s| s.latency).min().unwrap_or_default();
        replicas
            .iter()
            .map(|replica| {
                let standing = scores.standing(replica.id, now);
                let revision = *replica.revision.lock();
                let state = match standing.latency {
                    _ if standing.set_aside => ReplicaState::Liar,
                    _ if standing.failing => ReplicaState::Down,
                    None => ReplicaState::Untried,
                    Some(_) if revision.1 != 0 && revision < newest => ReplicaState::Stale,
                    Some(latency) if latency > fastest * SLOW_FACTOR && latency > Duration::from_millis(5) => ReplicaState::Slow,
                    Some(_) => ReplicaState::Up,
                };
                ReplicaStatus {
                    address: replica.address,
                    host: replica.host.clone(),
                    state,
                    latency: standing.latency,
                    revision: revision.1,
                    asked: replica.asked.load(Ordering::Relaxed),
                    failed: replica.failed.load(Ordering::Relaxed),
                    lied: replica.lied.load(Ordering::Relaxed),
                    last_error: replica.last_error.lock().clone(),
                }
            })
            .collect()
    }
}

impl Replica {
    pub(crate) const fn id(&self) -> ReplicaId {
        self.id
    }

    pub(crate) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Calls a procedure. A connection that was idle may have been closed by the other side just
    /// now, so one that was not made for this call gets a second try.
    pub(crate) async fn call(&self, procedure: Procedure, args: &[u8]) -> Result<Bytes, CallFailure> {
        let (connection, reused) = self.connection().await?;
        match connection.call(procedure, args).await {
            Err(CallFailure::Closed(_)) if reused => self.connection().await?.0.call(procedure, args).await,
            done => done,
        }
    }

    /// Calls GETDATA and hands each result to `take` as it comes. A second try as with
    /// [`Replica::call`], unless something came.
    pub(crate) async fn call_data(&self, args: &GetDataArgs, mut take: impl FnMut(Option<Bytes>) + Send) -> Result<(), CallFailure> {
        let has_begun = AtomicBool::new(false);
        let mut take = |found| {
            has_begun.store(true, Ordering::Relaxed);
            take(found);
        };
        let (connection, reused) = self.connection().await?;
        match connection.call_data(args, &mut take).await {
            Err(CallFailure::Closed(_)) if reused && !has_begun.load(Ordering::Relaxed) => {
                self.connection().await?.0.call_data(args, &mut take).await
            }
            done => done,
        }
    }

    /// The connection, made anew where there is none; `true` if it was there. Bounded in time by
    /// the connect time-out.
    async fn connection(&self) -> Result<(Connection, bool), CallFailure> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|c| c.is_open()) {
            return Ok((connection.clone(), true));
        }
        // Who comes while a connection is being made waits for the same one, and fails with it.
        if self.is_paused() {
            return Err(CallFailure::Unconnected(self.last_error.lock().clone().unwrap_or_default()));
        }
        let stream = match timeout(self.reach.connect_timeout, self.reach.connector.connect(self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(CallFailure::Unconnected(error.to_string())),
            Err(_) => return Err(CallFailure::Unconnected(format!("no connection within {} s", self.reach.connect_timeout.as_secs()))),
        };
        // A guess at the next transaction gains an off-path attacker nothing that the hashes would let
        // pass.
        let first_xid = (self.reach.seed >> 16) as u32 ^ self.asked.load(Ordering::Relaxed) as u32;
        Ok((slot.insert(Connection::start(stream, first_xid)).clone(), false))
    }

    /// The open connection, without making one.
    pub(crate) fn open_connection(&self) -> Option<Connection> {
        self.connection.try_lock().ok()?.clone()
    }

    /// What it offers as the tree's fsinfo. Not bounded in time but for the connecting.
    pub(crate) async fn offer(&self, companions: bool) -> Result<Option<FsinfoOffer>, CallFailure> {
        let begun = Instant::now();
        let args = GetFsinfoArgs { hostid: self.hostid, companions }.to_xdr();
        let result = self.call(Procedure::GetFsinfo, &args).await.and_then(|results| {
            GetFsinfoResult::from_xdr(&results).map_err(|error| CallFailure::Garbage(format!("GETFSINFO results: {error}")))
        });
        match result {
            Ok(result) => {
                self.call_answered(begun.elapsed());
                Ok(match result {
                    GetFsinfoResult::Ok(offer) => Some(offer),
                    GetFsinfoResult::NoTree => None,
                })
            }
            Err(failure) => {
                self.call_failed(&failure);
                Err(failure)
            }
        }
    }

    pub(crate) fn note_revision(&self, revision: (u64, u64)) {
        *self.revision.lock() = revision;
    }

    pub(crate) fn call_answered(&self, latency: Duration) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        CounterCells::add(&self.counters.calls, 1);
        self.scores.lock().answered(self.id, self.epoch.elapsed(), latency);
    }

    pub(crate) fn call_failed(&self, failure: &CallFailure) -> FetchFailure {
        self.asked.fetch_add(1, Ordering::Relaxed);
        CounterCells::add(&self.counters.calls, 1);
        if let CallFailure::Garbage(what) = failure {
            self.lied(what);
            return FetchFailure::Lied(what.clone());
        }
        let how = if matches!(failure, CallFailure::Closed(_)) { Failure::BrokeOff } else { Failure::Other };
        self.failed_by(how, &failure.to_string());
        FetchFailure::Failed(failure.to_string())
    }

    /// It did not answer, or could not be reached.
    pub(crate) fn failed(&self, what: &str) {
        self.failed_by(Failure::Other, what);
    }

    fn failed_by(&self, how: Failure, what: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let first = {
            let mut scores = self.scores.lock();
            let first = !scores.standing(self.id, self.epoch.elapsed()).failing;
            scores.failed(self.id, self.epoch.elapsed(), how);
            first
        };
        if first {
            tracing::warn!(replica = %self.address, host = %self.host, "replica failed: {what}");
        }
        *self.last_error.lock() = Some(what.to_owned());
    }

    /// It sent what can't be true; `proof` says what.
    pub(crate) fn lied(&self, proof: &str) {
        self.witness(Doubt::Lie, proof);
        self.lied.fetch_add(1, Ordering::Relaxed);
        CounterCells::add(&self.counters.lies, 1);
        let first = {
            let (mut scores, now) = (self.scores.lock(), self.epoch.elapsed());
            let first = !scores.is_set_aside(self.id, now);
            scores.lied(self.id, now);
            first
        };
        if first {
            tracing::error!(replica = %self.address, host = %self.host, tree = %self.hostid, proof, "replica lied; it is set aside");
        } else {
            tracing::debug!(replica = %self.address, proof, "replica lied again");
        }
        *self.last_error.lock() = Some(proof.to_owned());
    }

    /// Its offer is not believed, or not used.
    pub(crate) fn doubted(&self, what: Doubt<'_>, why: &str) {
        let now = what.as_last();
        if std::mem::replace(&mut *self.told.lock(), now) != now {
            self.witness(what, why);
        }
    }

    /// Its offer is as good as what is in force.
    pub(crate) fn trusted(&self) {
        *self.told.lock() = None;
    }

    fn witness(&self, what: Doubt<'_>, why: &str) {
        if let Some(Teller { witness, tree }) = &self.reach.teller {
            witness.disbelieved(&Disbelieved { tree, replica: self.address, host: &self.host, what, why });
        }
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    fn is_paused(&self) -> bool {
        self.scores.lock().is_paused(self.id, self.epoch.elapsed())
    }
}
