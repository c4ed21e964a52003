//! Metrics in Prometheus text format, and health as JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;
use vouch_tree_client::{ReplicaState, Tree};

use crate::address_quota::AddressQuota;

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) sent_len: AtomicU64,
    responses: [AtomicU64; STATUSES.len() + 1],
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count_response(&self, status: StatusCode) {
        let index =
            STATUSES.iter().position(|known| *known == status.as_u16()).unwrap_or(STATUSES.len());
        Self::add(&self.responses[index], 1);
    }

    fn failed_responses(&self) -> u64 {
        STATUSES
            .iter()
            .zip(&self.responses)
            .filter(|(status, _)| **status >= 500)
            .map(|(_, count)| count.load(Ordering::Relaxed))
            .sum()
    }
}

pub struct Report {
    pub(crate) addresses: Vec<String>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) quota: Arc<AddressQuota>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Where it listens.
    pub addresses: Vec<String>,
    pub tree: String,
    pub state: String,
    pub revision: u64,
    pub expires: i64,
    pub connections: usize,
    pub sent_bytes: u64,
    pub failed_responses: u64,
    pub frames_from_memory: u64,
    pub frames_from_disk: u64,
    pub frames_from_network: u64,
    pub replicas: usize,
    pub good_replicas: usize,
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    tree: String,
    /// "fresh", "expired" or "refused".
    state: &'static str,
    revision: u64,
    expires: i64,
    connections: usize,
}

impl StatusSource for Report {
    fn metrics(&self) -> String {
        let mut page = Exposition::of_daemon();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vouch_daemon::metrics! { page;
            Gauge "vouch_connections" "Connections open now." = self.quota.total();
            Gauge "vouch_connections_max" "Connection limit." = self.quota.connections_max();
            Counter "vouch_connections_accepted_total" "Connections let in."
                = count(&self.counters.accepted);
            Counter "vouch_connections_refused_total" "Connections turned away at a limit."
                = count(&self.counters.refused);
            Counter "vouch_gateway_handshake_failures_total" "TLS handshakes that failed."
                = count(&self.counters.handshakes_failed);
            Counter "vouch_sent_bytes_total" "Bytes of response bodies."
                = count(&self.counters.sent_len);
        }
        let responses =
            ("vouch_gateway_responses_total", Metric::Counter, "Responses, by status code.");
        let counts = self.counters.responses.iter().map(|count| count.load(Ordering::Relaxed));
        let statuses = STATUSES.iter().map(u16::to_string).chain(["other".to_owned()]);
        page.by(responses, "status", statuses.zip(counts));
        self.tree_samples(&mut page);
        page.into_text()
    }

    fn status(&self) -> DaemonStatus {
        let (newest, frames, (replicas, good_replicas)) =
            (self.tree.newest(), self.tree.counters(), self.replicas());
        let status = GatewayStatus {
            addresses: self.addresses.clone(),
            tree: self.tree.name().to_string(),
            state: self.state().to_owned(),
            revision: newest.number(),
            expires: newest.expires(),
            connections: self.quota.total(),
            sent_bytes: self.counters.sent_len.load(Ordering::Relaxed),
            failed_responses: self.counters.failed_responses(),
            frames_from_memory: frames.memory_frames,
            frames_from_disk: frames.disk_frames,
            frames_from_network: frames.network_frames,
            replicas,
            good_replicas,
        };
        DaemonStatus::of_process(DaemonKind::Gateway, &status)
    }

    fn health(&self, _now_s: u64) -> (bool, String) {
        let (newest, state) = (self.tree.newest(), self.state());
        let health = Health {
            healthy: state == "fresh",
            tree: self.tree.name().to_string(),
            state,
            revision: newest.number(),
            expires: newest.expires(),
            connections: self.quota.total(),
        };
        (health.healthy, crate::json::text(&health) + "\n")
    }
}

impl Report {
    fn state(&self) -> &'static str {
        match self.tree.revision() {
            Ok(_) => "fresh",
            Err(vouch_tree_client::Error::Expired { .. }) => "expired",
            Err(_) => "refused",
        }
    }

    fn replicas(&self) -> (usize, usize) {
        let replicas = self.tree.replicas();
        let is_good = |state| matches!(state, ReplicaState::Up | ReplicaState::Slow);
        (replicas.len(), replicas.iter().filter(|replica| is_good(replica.state)).count())
    }

    fn tree_samples(&self, page: &mut Exposition) {
        let (newest, hostid) = (self.tree.newest(), self.tree.hostid().to_string());
        let gauges: [(&str, &str, u64); 4] = [
            ("vouch_tree_revision", "The newest revision.", newest.number()),
            ("vouch_tree_start_timestamp_seconds", "When it was signed.", newest.fsinfo.start),
            (
                "vouch_tree_expiry_timestamp_seconds",
                "From when on it is refused.",
                newest.expires().try_into().unwrap_or(0),
            ),
            (
                "vouch_tree_usable",
                "Whether files are served: 0 if expired or revoked.",
                (self.state() == "fresh").into(),
            ),
        ];
        for (name, help, value) in gauges {
            page.by((name, Metric::Gauge, help), "tree", [(&hostid, value)]);
        }
        let counters = self.tree.counters();
        let sources = [
            ("memory", counters.memory_frames),
            ("disk", counters.disk_frames),
            ("network", counters.network_frames),
        ];
        let frames = ("vouch_gateway_frames_total", Metric::Counter, "Frames read, by source.");
        page.by(frames, "source", sources);
        let (known, good) = self.replicas();
        vouch_daemon::metrics! { page;
            Gauge "vouch_gateway_replicas" "Known replicas." = known;
            Gauge "vouch_gateway_replicas_good" "Replicas that answer with true data." = good;
        }
    }
}

const STATUSES: [u16; 14] = [200, 206, 302, 304, 400, 404, 405, 410, 412, 416, 500, 502, 503, 504];
