use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, timeout};
use vouch_tree::HostId;

use super::batch;
use super::replica::{Reach, Replica, Shared};
use super::request::queues;
use super::score::{Moment, ReplicaId, Scores};
use super::status::{CounterCells, ReplicaStatus};
use crate::http::url::without_userinfo;

const REPLICAS_MAX: usize = 32;

const LOCATIONS_MAX: usize = 128;

const RESOLVE_INTERVAL_MIN: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) host: String,
    pub(crate) port: u16,
}

pub(crate) struct ReplicaSet {
    locations: RwLock<Vec<Location>>,
    shared: Shared,
    replicas: RwLock<Vec<Arc<Replica>>>,
    resolved: tokio::sync::Mutex<Option<Instant>>,
    resolve_error: Mutex<String>,
    offers_refused: Mutex<Option<String>>,
}

impl ReplicaSet {
    pub(crate) fn new(
        hostid: HostId,
        locations: Vec<Location>,
        reach: Reach,
        counters: Arc<CounterCells>,
    ) -> Self {
        let scores = Arc::new(Mutex::new(Scores::new(0)));
        Self {
            locations: RwLock::new(locations),
            shared: Shared { hostid, reach, counters, scores, epoch: Instant::now() },
            replicas: RwLock::default(),
            resolved: tokio::sync::Mutex::new(None),
            resolve_error: Mutex::default(),
            offers_refused: Mutex::default(),
        }
    }

    pub(crate) async fn resolve(&self) {
        let mut resolved = self.resolved.lock().await;
        if resolved.is_some_and(|at| at.elapsed() < RESOLVE_INTERVAL_MIN) {
            return;
        }
        let locations = self.locations.read().clone();
        let lookups = locations.iter().map(|location| async move {
            let lookup = self.shared.reach.connector.resolve(&location.host, location.port);
            (location, timeout(self.shared.reach.connect_timeout, lookup).await)
        });
        for (location, found) in futures_util::future::join_all(lookups).await {
            match found {
                Ok(Ok(addresses)) => {
                    addresses.into_iter().for_each(|address| self.add(location, address))
                }
                Ok(Err(error)) => self
                    .note_resolve_error(format!("{}: {error}", without_userinfo(&location.host))),
                Err(_) => self.note_resolve_error(format!(
                    "{}: name lookup timed out",
                    without_userinfo(&location.host)
                )),
            }
        }
        // Without replicas, the next call resolves again.
        *resolved = (self.len() > 0).then(Instant::now);
    }

    pub(crate) async fn add_locations(&self, more: Vec<Location>) {
        let is_longer = {
            let mut locations = self.locations.write();
            let before = locations.len();
            for location in more {
                if locations.len() < LOCATIONS_MAX && !locations.contains(&location) {
                    locations.push(location);
                }
            }
            locations.len() > before
        };
        if is_longer {
            *self.resolved.lock().await = None;
            self.resolve().await;
        }
    }

    fn note_resolve_error(&self, error: String) {
        let mut last = self.resolve_error.lock();
        if *last != error {
            tracing::warn!(tree = %self.shared.hostid, "resolving replica {error}");
            *last = error;
        }
    }

    fn add(&self, location: &Location, address: SocketAddr) {
        let mut replicas = self.replicas.write();
        if replicas.len() >= REPLICAS_MAX
            || replicas.iter().any(|r| r.is_at(&location.host, address))
        {
            return;
        }
        let (queues, ends) = queues();
        let id = ReplicaId(replicas.len());
        let replica = Arc::new(Replica::new(id, address, &location.host, &self.shared, queues));
        self.shared.scores.lock().grow(replicas.len() + 1);
        tokio::spawn(batch::run(Arc::downgrade(&replica), ends));
        replicas.push(replica);
    }

    pub(crate) fn hostid(&self) -> &HostId {
        &self.shared.hostid
    }

    pub(crate) fn counters(&self) -> &CounterCells {
        &self.shared.counters
    }

    pub(crate) fn scores(&self) -> &Arc<Mutex<Scores>> {
        &self.shared.scores
    }

    /// The next call connects to each honest replica again.
    pub(crate) fn end_pauses(&self) {
        let now = self.now();
        self.shared.scores.lock().shorten_pauses(now, now);
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.epoch.elapsed()
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

    pub(crate) fn resolve_error(&self) -> String {
        self.resolve_error.lock().clone()
    }

    pub(crate) fn note_offers_refused(&self, why: Option<String>) {
        *self.offers_refused.lock() = why;
    }

    pub(crate) fn offers_refused(&self) -> Option<String> {
        self.offers_refused.lock().clone()
    }

    pub(crate) fn status(&self) -> Vec<ReplicaStatus> {
        let (now, replicas) = (self.now(), self.all());
        let newest = replicas.iter().map(|replica| replica.revision()).max().unwrap_or_default();
        let scores = self.shared.scores.lock();
        let health_of_all = replicas
            .iter()
            .map(|r| scores.health(r.id(), now))
            .filter(|h| !h.is_excluded && !h.failing);
        let fastest = health_of_all.filter_map(|health| health.latency).min().unwrap_or_default();
        replicas
            .iter()
            .map(|replica| replica.status(scores.health(replica.id(), now), newest, fastest))
            .collect()
    }
}
