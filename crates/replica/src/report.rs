//! Metrics in Prometheus text format, and health as JSON.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::counters::{Closed, Count, Counters, LATENCY_US_MAX, Request};
use super::scrub::ScrubCounts;
use super::trees::Trees;
use super::worker::Shared;

#[derive(Debug)]
pub(super) struct Report {
    pub(super) trees: Arc<Trees>,
    pub(super) shared: Arc<Shared>,
    pub(super) threads: Vec<Arc<Counters>>,
    pub(super) reloads: Count,
    pub(super) reload_failures: Count,
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    connections: usize,
    trees: Vec<TreeHealth>,
}

#[derive(Serialize)]
struct TreeHealth {
    hostid: String,
    /// "fresh", "expired" (clients reject it), "empty" (nothing complete yet) or "broken" (the old
    /// revision is still served).
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl vouch_daemon::metrics_page::PageSource for Report {
    fn metrics(&self) -> String {
        Report::metrics(self)
    }

    fn health(&self, now_s: u64) -> (bool, String) {
        Report::health(self, now_s)
    }
}

type OneCount = fn(&Counters) -> &Count;

impl Report {
    /// Whether the replica is healthy at `now` (seconds since 1970), and details in JSON. An
    /// expired tree is still served, since clients decide, but it is unhealthy.
    pub(super) fn health(&self, now: u64) -> (bool, String) {
        let trees: Vec<_> = self.trees.all().iter().map(|tree| TreeHealth::new(tree, now)).collect();
        let healthy = !trees.is_empty() && trees.iter().all(|tree| tree.state == "fresh");
        let health = Health { healthy, connections: self.shared.open.load(Ordering::Relaxed), trees };
        let json = serde_json::to_string_pretty(&health).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
        (healthy, json + "\n")
    }

    pub(super) fn metrics(&self) -> String {
        let mut page = Page(String::new());
        page.family("vouch_build_info", "gauge", "The running version.");
        page.sample("vouch_build_info", &format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1);
        page.family("vouch_connections", "gauge", "Connections open now.");
        page.sample("vouch_connections", "", self.shared.open.load(Ordering::Relaxed) as u64);
        page.family("vouch_connections_max", "gauge", "Connection limit.");
        page.sample("vouch_connections_max", "", self.shared.limits.connections_max as u64);
        let totals: [(&str, &str, OneCount); 5] = [
            ("vouch_connections_accepted_total", "Connections let in.", |c| &c.accepted),
            ("vouch_connections_refused_total", "Connections turned away at the limit.", |c| &c.refused),
            ("vouch_accept_failures_total", "Pauses because the system had no descriptor or memory for a connection.", |c| {
                &c.accept_failed
            }),
            ("vouch_received_bytes_total", "Bytes of requests.", |c| &c.received_len),
            ("vouch_sent_bytes_total", "Bytes of answers.", |c| &c.sent_len),
        ];
        for (name, help, count) in totals {
            page.family(name, "counter", help);
            page.sample(name, "", self.sum(|c| count(c).get()));
        }
        page.family("vouch_connections_closed_total", "counter", "Connections ended, by reason.");
        for (reason, name) in Closed::ALL {
            page.sample("vouch_connections_closed_total", &format!("{{reason=\"{name}\"}}"), self.sum(|c| c.closed(reason)));
        }
        page.family("vouch_requests_total", "counter", "Requests, by procedure and result.");
        for (request, procedure, result) in Request::ALL {
            let labels = format!("{{procedure=\"{procedure}\",result=\"{result}\"}}");
            page.sample("vouch_requests_total", &labels, self.sum(|c| c.requests(request)));
        }
        page.family("vouch_handles_total", "counter", "Requested frames, by result.");
        page.sample("vouch_handles_total", "{result=\"found\"}", self.sum(|c| c.handles_found.get()));
        page.sample("vouch_handles_total", "{result=\"not_found\"}", self.sum(|c| c.handles_missing.get()));
        self.latencies(&mut page);
        page.family("vouch_reloads_total", "counter", "Looks at databases that found a new state or failed.");
        page.sample("vouch_reloads_total", "{result=\"ok\"}", self.reloads.get());
        page.sample("vouch_reloads_total", "{result=\"failed\"}", self.reload_failures.get());
        self.tree_samples(&mut page);
        page.0
    }

    fn latencies(&self, page: &mut Page) {
        let name = "vouch_answer_seconds";
        page.family(name, "histogram", "From reading requests to handing the last byte of their answers to the kernel.");
        let mut buckets = [0; LATENCY_US_MAX.len() + 1];
        let mut us = 0;
        for counters in &self.threads {
            let (of_thread, us_of_thread) = counters.latencies();
            us += us_of_thread;
            buckets.iter_mut().zip(of_thread).for_each(|(sum, n)| *sum += n);
        }
        for (max, n) in LATENCY_US_MAX.iter().zip(buckets) {
            page.sample(&format!("{name}_bucket"), &format!("{{le=\"{}\"}}", *max as f64 / 1e6), n);
        }
        let all = buckets[LATENCY_US_MAX.len()];
        page.sample(&format!("{name}_bucket"), "{le=\"+Inf\"}", all);
        let _ = writeln!(page.0, "{name}_sum {}", us as f64 / 1e6);
        page.sample(&format!("{name}_count"), "", all);
    }

    fn tree_samples(&self, page: &mut Page) {
        let trees = self.trees.all();
        let offers: Vec<_> = trees.iter().map(|tree| (format!("{{tree=\"{}\"}}", tree.hostid()), tree.offer().revision)).collect();
        for (name, help, value) in TREE_GAUGES {
            page.family(name, "gauge", help);
            for (labels, revision) in &offers {
                if let Some(revision) = revision {
                    page.sample(name, labels, value(revision));
                }
            }
        }
        for (name, kind, help, value) in SCRUB_SAMPLES {
            page.family(name, kind, help);
            for (tree, (labels, _)) in trees.iter().zip(&offers) {
                page.sample(name, labels, value(tree.scrubbed()).load(Ordering::Relaxed));
            }
        }
        page.family("vouch_tree_broken", "gauge", "Whether the last look at the database failed.");
        for (tree, (labels, _)) in trees.iter().zip(&offers) {
            page.sample("vouch_tree_broken", labels, tree.trouble().is_some().into());
        }
    }

    fn sum(&self, of_thread: impl Fn(&Counters) -> u64) -> u64 {
        self.threads.iter().map(|counters| of_thread(counters)).sum()
    }
}

type TreeGauge = (&'static str, &'static str, fn(&super::trees::OfferedRevision) -> u64);

const TREE_GAUGES: [TreeGauge; 5] = [
    ("vouch_tree_revision", "The newest revision.", |r| r.number),
    ("vouch_tree_start_seconds", "When it was signed.", |r| r.start),
    ("vouch_tree_expiry_seconds", "From when on clients reject it.", |r| r.end),
    ("vouch_tree_files", "Regular files in it.", |r| r.files),
    ("vouch_tree_bytes", "Their bytes.", |r| r.bytes),
];

type ScrubSample = (&'static str, &'static str, &'static str, fn(&ScrubCounts) -> &AtomicU64);

const SCRUB_SAMPLES: [ScrubSample; 3] = [
    ("vouch_tree_scrub_bytes_total", "counter", "Bytes hashed by the scrub.", |counts| &counts.bytes),
    ("vouch_tree_scrub_passes_total", "counter", "Complete passes of the scrub.", |counts| &counts.passes),
    ("vouch_tree_scrub_damaged_frames", "gauge", "Damaged frames in the last pass of the scrub.", |counts| &counts.damaged_frames),
];

impl TreeHealth {
    fn new(tree: &super::trees::Tree, now: u64) -> Self {
        let (offer, trouble) = (tree.offer(), tree.trouble());
        let revision = offer.revision;
        let state = match revision {
            _ if trouble.is_some() => "broken",
            None => "empty",
            Some(revision) if now >= revision.end => "expired",
            Some(_) => "fresh",
        };
        Self {
            hostid: tree.hostid().to_string(),
            state,
            trouble,
            revision: revision.map(|r| r.number),
            start: revision.map(|r| r.start),
            expires: revision.map(|r| r.end),
            files: revision.map(|r| r.files),
            bytes: revision.map(|r| r.bytes),
        }
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}
