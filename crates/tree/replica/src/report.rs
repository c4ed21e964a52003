use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;

use vouch_tree_cache::CacheCounts;

use super::counters::{Closed, Count, Counters, LATENCY_US_MAX, Request};
use super::scrub::ScrubCounts;
use super::trees::Trees;
use super::worker::Shared;

#[derive(Debug)]
pub(super) struct Report {
    pub(super) trees: Arc<Trees>,
    pub(super) shared: Arc<Shared>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) threads: Vec<Arc<Counters>>,
    pub(super) reloads: Count,
    pub(super) reload_failures: Count,
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    connections: usize,
    trees: Vec<ServedTree>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServeStatus {
    pub addresses: Vec<String>,
    pub connections: usize,
    pub connections_max: usize,
    pub sent_bytes: u64,
    pub frames_found: u64,
    pub frames_missing: u64,
    pub trees: Vec<ServedTree>,
}

/// A tree without a revision has no numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServedTree {
    pub hostid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    pub state: TreeState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeState {
    Fresh,
    /// Clients refuse it.
    Expired,
    /// Nothing complete yet.
    Empty,
    /// A file of the database is unreadable; the old revision is still served.
    Broken,
    /// The tree's key is revoked: clients refuse every revision.
    Revoked,
}

impl TreeState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Expired => "expired",
            Self::Empty => "empty",
            Self::Broken => "broken",
            Self::Revoked => "revoked",
        }
    }
}

impl StatusSource for Report {
    fn metrics(&self) -> String {
        Report::metrics(self)
    }

    fn health(&self, now_s: u64) -> (bool, String) {
        Report::health(self, now_s)
    }

    fn status(&self) -> DaemonStatus {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let status = ServeStatus {
            addresses: self.addresses.iter().map(ToString::to_string).collect(),
            connections: self.shared.open.load(Ordering::Relaxed),
            connections_max: self.shared.limits.connections_max,
            sent_bytes: self.sum(|counters| counters.sent_len.get()),
            frames_found: self.sum(|counters| counters.handles_found.get()),
            frames_missing: self.sum(|counters| counters.handles_missing.get()),
            trees: self.served_trees(now_s),
        };
        DaemonStatus::of_process(DaemonKind::Serve, &status)
    }
}

impl Report {
    /// `now`: seconds since 1970. Returns details in JSON. An expired or revoked tree is unhealthy,
    /// but still served: clients decide.
    pub(super) fn health(&self, now: u64) -> (bool, String) {
        let mut trees = self.served_trees(now);
        trees.iter_mut().for_each(|tree| tree.database = None);
        let healthy = !trees.is_empty() && trees.iter().all(|tree| tree.state == TreeState::Fresh);
        let health =
            Health { healthy, connections: self.shared.open.load(Ordering::Relaxed), trees };
        let json = serde_json::to_string_pretty(&health)
            .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
        (healthy, json + "\n")
    }

    fn served_trees(&self, now: u64) -> Vec<ServedTree> {
        self.trees.all().iter().map(|tree| ServedTree::new(tree, now)).collect()
    }

    pub(super) fn metrics(&self) -> String {
        use Metric::Counter;
        let mut page = Exposition::of_daemon();
        vouch_daemon::metrics! { page;
            Gauge "vouch_connections" "Connections open now."
                = self.shared.open.load(Ordering::Relaxed);
            Gauge "vouch_connections_max" "Connection limit." = self.shared.limits.connections_max;
            Counter "vouch_connections_accepted_total" "Connections let in."
                = self.sum(|c| c.accepted.get());
            Counter "vouch_connections_refused_total" "Connections turned away at the limit."
                = self.sum(|c| c.refused.get());
            Counter "vouch_accept_failures_total"
                "Pauses because the system had no descriptor or memory for a connection."
                = self.sum(|c| c.accept_failed.get());
            Counter "vouch_received_bytes_total" "Bytes of requests."
                = self.sum(|c| c.received_len.get());
            Counter "vouch_sent_bytes_total" "Bytes of answers." = self.sum(|c| c.sent_len.get());
        }
        let closed = Closed::ALL.map(|(reason, name)| (name, self.sum(|c| c.closed(reason))));
        let help = "Connections ended, by reason.";
        page.by(("vouch_connections_closed_total", Counter, help), "reason", closed);
        page.family("vouch_requests_total", Counter, "Requests, by procedure and result.");
        for (request, procedure, result) in Request::ALL {
            let labels = [("procedure", procedure), ("result", result)];
            page.sample("vouch_requests_total", &labels, self.sum(|c| c.requests(request)));
        }
        let handles = [
            ("found", self.sum(|c| c.handles_found.get())),
            ("not_found", self.sum(|c| c.handles_missing.get())),
        ];
        let help = "Requested frames, by result.";
        page.by(("vouch_handles_total", Counter, help), "result", handles);
        self.latencies(&mut page);
        let reloads = [("ok", self.reloads.get()), ("failed", self.reload_failures.get())];
        let help = "Looks at databases that found a new state or failed.";
        page.by(("vouch_reloads_total", Counter, help), "result", reloads);
        self.tree_samples(&mut page);
        self.cache_samples(&mut page);
        page.into_text()
    }

    fn latencies(&self, page: &mut Exposition) {
        let name = "vouch_answer_seconds";
        page.family(
            name,
            Metric::Histogram,
            "From reading requests to handing the last byte of their answers to the kernel.",
        );
        let mut buckets = [0; LATENCY_US_MAX.len() + 1];
        let mut us = 0;
        for counters in &self.threads {
            let (of_thread, us_of_thread) = counters.latencies();
            us += us_of_thread;
            buckets.iter_mut().zip(of_thread).for_each(|(sum, n)| *sum += n);
        }
        for (max, n) in LATENCY_US_MAX.iter().zip(buckets) {
            page.sample(&format!("{name}_bucket"), &[("le", &(*max as f64 / 1e6).to_string())], n);
        }
        let all = buckets[LATENCY_US_MAX.len()];
        page.sample(&format!("{name}_bucket"), &[("le", "+Inf")], all);
        page.sample(&format!("{name}_sum"), &[], us as f64 / 1e6);
        page.sample(&format!("{name}_count"), &[], all);
    }

    fn tree_samples(&self, page: &mut Exposition) {
        let trees = self.trees.all();
        let named = || trees.iter().map(|tree| (tree.hostid().to_string(), tree));
        let offers: Vec<_> =
            named().map(|(hostid, tree)| (hostid, tree.offer().revision)).collect();
        for (name, help, value) in TREE_GAUGES {
            let values = offers
                .iter()
                .filter_map(|(hostid, revision)| Some((hostid, value(revision.as_ref()?))));
            page.by((name, Metric::Gauge, help), "tree", values);
        }
        for (name, kind, help, value) in SCRUB_SAMPLES {
            let values = named()
                .map(|(hostid, tree)| (hostid, value(tree.scrubbed()).load(Ordering::Relaxed)));
            page.by((name, kind, help), "tree", values);
        }
        let revoked =
            named().map(|(hostid, tree)| (hostid, u8::from(tree.offer().revoked.is_some())));
        let help = "Whether the key of the tree is revoked: clients refuse it.";
        page.by(("vouch_tree_revoked", Metric::Gauge, help), "tree", revoked);
        let broken = named().map(|(hostid, tree)| (hostid, u8::from(tree.trouble().is_some())));
        let help = "Whether the last look at the database failed.";
        page.by(("vouch_tree_broken", Metric::Gauge, help), "tree", broken);
    }

    fn cache_samples(&self, page: &mut Exposition) {
        let trees = self.trees.all();
        let caches: Vec<_> = trees
            .iter()
            .filter_map(|tree| Some((tree.hostid().to_string(), tree.cache.as_ref()?.counts())))
            .collect();
        if caches.is_empty() {
            return;
        }
        for (name, kind, help, value) in CACHE_SAMPLES {
            let values = caches.iter().map(|(hostid, counts)| (hostid, value(counts)));
            page.by((name, kind, help), "tree", values);
        }
    }

    fn sum(&self, of_thread: impl Fn(&Counters) -> u64) -> u64 {
        self.threads.iter().map(|counters| of_thread(counters)).sum()
    }
}

type TreeGauge = (&'static str, &'static str, fn(&super::trees::OfferedRevision) -> u64);

const TREE_GAUGES: [TreeGauge; 5] = [
    ("vouch_tree_revision", "The newest revision.", |r| r.number),
    ("vouch_tree_start_timestamp_seconds", "When it was signed.", |r| r.start),
    ("vouch_tree_expiry_timestamp_seconds", "From when on clients reject it.", |r| r.end),
    ("vouch_tree_files", "Regular files in it.", |r| r.files),
    ("vouch_tree_bytes", "Their bytes.", |r| r.bytes),
];

type CacheSample = (&'static str, Metric, &'static str, fn(&CacheCounts) -> u64);

const CACHE_SAMPLES: [CacheSample; 7] = [
    (
        "vouch_cache_hits_total",
        Metric::Counter,
        "Requests for frames or bytes that the cache had.",
        |counts| counts.hits,
    ),
    (
        "vouch_cache_fetched_frames_total",
        Metric::Counter,
        "Frames fetched from replicas.",
        |counts| counts.fetched,
    ),
    ("vouch_cache_fetched_bytes_total", Metric::Counter, "Their bytes.", |counts| {
        counts.fetched_len
    }),
    (
        "vouch_cache_failed_frames_total",
        Metric::Counter,
        "Frames that no replica has sent.",
        |counts| counts.failed,
    ),
    ("vouch_cache_evictions_total", Metric::Counter, "Packs removed for room.", |counts| {
        counts.evictions
    }),
    ("vouch_cache_bytes", Metric::Gauge, "Disk space in use.", |counts| counts.used_len),
    ("vouch_cache_quota_bytes", Metric::Gauge, "Quota of the disk space.", |counts| counts.quota),
];

type ScrubSample = (&'static str, Metric, &'static str, fn(&ScrubCounts) -> &AtomicU64);

const SCRUB_SAMPLES: [ScrubSample; 3] = [
    ("vouch_tree_scrub_bytes_total", Metric::Counter, "Bytes hashed by the scrub.", |counts| {
        &counts.bytes
    }),
    ("vouch_tree_scrub_passes_total", Metric::Counter, "Complete passes of the scrub.", |counts| {
        &counts.passes
    }),
    (
        "vouch_tree_scrub_damaged_frames",
        Metric::Gauge,
        "Damaged frames in the last pass of the scrub.",
        |counts| &counts.damaged_frames,
    ),
];

impl ServedTree {
    fn new(tree: &super::trees::Tree, now: u64) -> Self {
        let (offer, trouble) = (tree.offer(), tree.trouble());
        let revision = offer.revision;
        let state = match revision {
            _ if offer.revoked.is_some() => TreeState::Revoked,
            _ if trouble.is_some() => TreeState::Broken,
            None => TreeState::Empty,
            Some(revision) if now >= revision.end => TreeState::Expired,
            Some(_) => TreeState::Fresh,
        };
        Self {
            hostid: tree.hostid().to_string(),
            database: Some(tree.path().display().to_string()),
            state,
            trouble: offer.revoked.clone().or(trouble),
            revision: revision.map(|r| r.number),
            start: revision.map(|r| r.start),
            expires: revision.map(|r| r.end),
            files: revision.map(|r| r.files),
            bytes: revision.map(|r| r.bytes),
        }
    }
}
