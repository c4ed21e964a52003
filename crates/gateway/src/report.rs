//! Metrics in Prometheus text format, and health as JSON.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use serde::Serialize;
use vouch_daemon::metrics_page::PageSource;
use vouch_tree_client::{ReplicaState, Tree};

use crate::address_quota::AddressQuota;

/// Counts of the gateway.
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
        let index = STATUSES.iter().position(|known| *known == status.as_u16()).unwrap_or(STATUSES.len());
        Self::add(&self.responses[index], 1);
    }
}

/// What the metrics page shows.
pub struct Report {
    pub(crate) tree: Arc<Tree>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) quota: Arc<AddressQuota>,
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

impl PageSource for Report {
    fn metrics(&self) -> String {
        let mut page = Page(String::new());
        page.one("vouch_build_info", "gauge", "The running version.", &format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1);
        page.one("vouch_connections", "gauge", "Connections open now.", "", self.quota.total() as u64);
        page.one("vouch_connections_max", "gauge", "Connection limit.", "", self.quota.connections_max() as u64);
        let counters = &self.counters;
        for (name, help, count) in [
            ("vouch_connections_accepted_total", "Connections let in.", &counters.accepted),
            ("vouch_connections_refused_total", "Connections turned away at a limit.", &counters.refused),
            ("vouch_gateway_handshake_failures_total", "TLS handshakes that failed.", &counters.handshakes_failed),
            ("vouch_sent_bytes_total", "Bytes of response bodies.", &counters.sent_len),
        ] {
            page.one(name, "counter", help, "", count.load(Ordering::Relaxed));
        }
        page.family("vouch_gateway_responses_total", "counter", "Responses, by status code.");
        for (status, count) in STATUSES.iter().map(u16::to_string).chain(["other".to_owned()]).zip(&counters.responses) {
            page.sample("vouch_gateway_responses_total", &format!("{{status=\"{status}\"}}"), count.load(Ordering::Relaxed));
        }
        self.tree_samples(&mut page);
        page.0
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

    fn tree_samples(&self, page: &mut Page) {
        let newest = self.tree.newest();
        let labels = format!("{{tree=\"{}\"}}", self.tree.hostid());
        page.one("vouch_tree_revision", "gauge", "The newest revision.", &labels, newest.number());
        page.one("vouch_tree_start_seconds", "gauge", "When it was signed.", &labels, newest.fsinfo.start);
        page.one("vouch_tree_expiry_seconds", "gauge", "From when on it is refused.", &labels, newest.expires().try_into().unwrap_or(0));
        page.one(
            "vouch_tree_usable",
            "gauge",
            "Whether files are served: 0 if expired or revoked.",
            &labels,
            (self.state() == "fresh").into(),
        );
        let counters = self.tree.counters();
        page.family("vouch_gateway_frames_total", "counter", "Frames read, by source.");
        for (source, count) in [("memory", counters.memory_frames), ("disk", counters.disk_frames), ("network", counters.network_frames)] {
            page.sample("vouch_gateway_frames_total", &format!("{{source=\"{source}\"}}"), count);
        }
        let replicas = self.tree.replicas();
        let good = replicas.iter().filter(|replica| matches!(replica.state, ReplicaState::Up | ReplicaState::Slow)).count();
        page.one("vouch_gateway_replicas", "gauge", "Known replicas.", "", replicas.len() as u64);
        page.one("vouch_gateway_replicas_good", "gauge", "Replicas that answer with true data.", "", good as u64);
    }
}

struct Page(String);

impl Page {
    fn one(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, labels, value);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

const STATUSES: [u16; 14] = [200, 206, 302, 304, 400, 404, 405, 410, 412, 416, 500, 502, 503, 504];
