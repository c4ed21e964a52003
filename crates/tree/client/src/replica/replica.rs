use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use vouch_tree::HostId;
use vouch_tree::protocol::{FsinfoOffer, GetDataArgs, GetFsinfoArgs, GetFsinfoResult, Procedure};
use vouch_xdr::Xdr;

use super::connection::{CallFailure, Connection};
use super::request::{FetchFailure, Queues};
use super::score::{ReplicaHealth, ReplicaId, Scores};
use super::status::{CounterCells, ReplicaState, ReplicaStatus};
use crate::connector::Connector;
use crate::http::url;
use crate::replica_fault::{FaultKind, FaultReporter, LastFault, ReplicaFault};
use crate::replica_tls;

const SLOW_FACTOR: u32 = 4;

#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) connect_timeout: Duration,
    pub(crate) seed: u64,
    pub(crate) reporter: Option<FaultReporter>,
}

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
    /// Certificate serial and number of the newest offer; number 0 before the first.
    revision: Mutex<(u64, u64)>,
    asked: AtomicU64,
    failed: AtomicU64,
    lied: AtomicU64,
    last_error: Mutex<Option<String>>,
    last_fault: Mutex<Option<LastFault>>,
}

pub(super) struct Shared {
    pub(super) hostid: HostId,
    pub(super) reach: Reach,
    pub(super) counters: Arc<CounterCells>,
    pub(super) scores: Arc<Mutex<Scores>>,
    pub(super) epoch: Instant,
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match replica_tls::host_of(&self.host) {
            Some(_) => f.write_str(&replica_tls::location_of(&self.address.to_string())),
            None if url::is_url(&self.host) => f.write_str(&self.shown_host()),
            None => self.address.fmt(f),
        }
    }
}

impl Replica {
    pub(super) fn new(
        id: ReplicaId,
        address: SocketAddr,
        host: &str,
        shared: &Shared,
        queues: Queues,
    ) -> Self {
        Self {
            hostid: shared.hostid,
            address,
            counters: Arc::clone(&shared.counters),
            id,
            host: host.to_owned(),
            reach: shared.reach.clone(),
            scores: Arc::clone(&shared.scores),
            epoch: shared.epoch,
            queues,
            connection: tokio::sync::Mutex::new(None),
            revision: Mutex::default(),
            asked: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lied: AtomicU64::new(0),
            last_error: Mutex::new(None),
            last_fault: Mutex::new(None),
        }
    }

    /// True if this replica has this location and address. A URL needs no address. TLS and clear
    /// text are two replicas.
    pub(super) fn is_at(&self, host: &str, address: SocketAddr) -> bool {
        if url::is_url(host) {
            return self.host == host;
        }
        let is_over_tls = |host: &str| replica_tls::host_of(host).is_some();
        self.address == address
            && !url::is_url(&self.host)
            && is_over_tls(&self.host) == is_over_tls(host)
    }

    fn shown_host(&self) -> String {
        url::without_userinfo(&self.host)
    }

    pub(super) fn revision(&self) -> (u64, u64) {
        *self.revision.lock()
    }

    pub(super) fn status(
        &self,
        health: ReplicaHealth,
        newest: (u64, u64),
        fastest: Duration,
    ) -> ReplicaStatus {
        let revision = self.revision();
        let state = match health.latency {
            _ if health.is_excluded => ReplicaState::Liar,
            _ if health.failing => ReplicaState::Down,
            None => ReplicaState::Untried,
            Some(_) if revision.1 != 0 && revision < newest => ReplicaState::Stale,
            Some(latency)
                if latency > fastest * SLOW_FACTOR && latency > Duration::from_millis(5) =>
            {
                ReplicaState::Slow
            }
            Some(_) => ReplicaState::Up,
        };
        ReplicaStatus {
            address: self.address,
            host: self.shown_host(),
            state,
            latency: health.latency,
            revision: revision.1,
            asked: self.asked.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            lied: self.lied.load(Ordering::Relaxed),
            last_error: self.last_error.lock().clone(),
        }
    }

    pub(crate) const fn id(&self) -> ReplicaId {
        self.id
    }

    pub(crate) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Retries once on a reused connection: the peer may have closed it.
    pub(crate) async fn call(
        &self,
        procedure: Procedure,
        args: &[u8],
    ) -> Result<Bytes, CallFailure> {
        let (connection, reused) = self.connection().await?;
        match connection.call(procedure, args).await {
            Err(CallFailure::Closed(_)) if reused => {
                self.connection().await?.0.call(procedure, args).await
            }
            done => done,
        }
    }

    /// GETDATA. Results go to `take`. Retries as [`Replica::call`], unless results have arrived.
    pub(crate) async fn call_data(
        &self,
        args: &GetDataArgs,
        mut take: impl FnMut(Option<Bytes>) -> bool + Send,
    ) -> Result<(), CallFailure> {
        let has_begun = AtomicBool::new(false);
        let mut take = |found| {
            has_begun.store(true, Ordering::Relaxed);
            take(found)
        };
        let (connection, reused) = self.connection().await?;
        match connection.call_data(args, &mut take).await {
            Err(CallFailure::Closed(_)) if reused && !has_begun.load(Ordering::Relaxed) => {
                self.connection().await?.0.call_data(args, &mut take).await
            }
            done => done,
        }
    }

    async fn connection(&self) -> Result<(Connection, bool), CallFailure> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_ref().filter(|c| c.is_open()) {
            return Ok((connection.clone(), true));
        }
        // Concurrent callers share the attempt and its failure.
        if self.is_paused() {
            return Err(CallFailure::Unconnected(
                self.last_error.lock().clone().unwrap_or_default(),
            ));
        }
        let link = match timeout(
            self.reach.connect_timeout,
            self.reach.connector.connect(&self.host, self.address),
        )
        .await
        {
            Ok(Ok(link)) => link,
            // Of a web server or of TLS.
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(CallFailure::Declined(error.to_string()));
            }
            Ok(Err(error)) => return Err(CallFailure::Unconnected(error.to_string())),
            Err(_) => {
                let what =
                    if url::is_url(&self.host) { "no whole manifest" } else { "no connection" };
                return Err(CallFailure::Unconnected(format!(
                    "{what} within {:.1} s",
                    self.reach.connect_timeout.as_secs_f32()
                )));
            }
        };
        // Predictable xids are harmless: frames are verified by hash.
        let first_xid = (self.reach.seed >> 16) as u32 ^ self.asked.load(Ordering::Relaxed) as u32;
        Ok((slot.insert(Connection::start(link, first_xid)).clone(), false))
    }

    pub(crate) fn open_connection(&self) -> Option<Connection> {
        self.connection.try_lock().ok()?.clone()
    }

    pub(crate) async fn offer(&self, companions: bool) -> Result<Option<FsinfoOffer>, CallFailure> {
        let begun = Instant::now();
        let args = GetFsinfoArgs { hostid: self.hostid, companions }.to_xdr();
        let result = self.call(Procedure::GetFsinfo, &args).await.and_then(|results| {
            GetFsinfoResult::from_xdr(&results)
                .map_err(|error| CallFailure::Garbage(format!("GETFSINFO results: {error}")))
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

    pub(crate) fn set_revision(&self, revision: (u64, u64)) {
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
        self.failed(&failure.to_string());
        FetchFailure::Failed(failure.to_string())
    }

    pub(crate) fn failed(&self, what: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let first = {
            let mut scores = self.scores.lock();
            let first = !scores.health(self.id, self.epoch.elapsed()).failing;
            scores.failed(self.id, self.epoch.elapsed());
            first
        };
        if first {
            tracing::warn!(replica = %self, host = %self.shown_host(), "replica failed: {what}");
        }
        *self.last_error.lock() = Some(what.to_owned());
    }

    pub(crate) fn lied(&self, proof: &str) {
        self.report_fault(FaultKind::Lie, proof);
        self.lied.fetch_add(1, Ordering::Relaxed);
        CounterCells::add(&self.counters.lies, 1);
        let first = {
            let (mut scores, now) = (self.scores.lock(), self.epoch.elapsed());
            let first = !scores.is_excluded(self.id, now);
            scores.lied(self.id, now);
            first
        };
        if first {
            tracing::error!(replica = %self, host = %self.shown_host(), tree = %self.hostid, proof, "replica sent wrong data; excluding it");
        } else {
            tracing::debug!(replica = %self, proof, "replica sent wrong data again");
        }
        *self.last_error.lock() = Some(proof.to_owned());
    }

    pub(crate) fn report_bad_offer(&self, what: FaultKind<'_>, why: &str) {
        let now = what.repeat_key();
        if std::mem::replace(&mut *self.last_fault.lock(), now) != now {
            self.report_fault(what, why);
        }
    }

    pub(crate) fn report_good_offer(&self) {
        *self.last_fault.lock() = None;
    }

    fn report_fault(&self, kind: FaultKind<'_>, detail: &str) {
        if let Some(FaultReporter { observer, tree }) = &self.reach.reporter {
            observer.replica_fault(&ReplicaFault {
                tree,
                replica: self.address,
                host: &self.shown_host(),
                kind,
                detail,
            });
        }
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    fn is_paused(&self) -> bool {
        self.scores.lock().is_paused(self.id, self.epoch.elapsed())
    }
}
