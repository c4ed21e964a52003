use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde::Serialize;
use tokio::sync::Notify;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::failure::{At as _, Outcome};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::{self, StatusListeners, StatusSource};
use vouch_tree_mount::{MountMonitor, MountStatus, ReplicaReport, TreeStatus};

use crate::audit::MountAudit;

pub(crate) struct MountReport {
    pub(crate) monitor: MountMonitor,
    pub(crate) audit: Option<Arc<MountAudit>>,
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    trees: Vec<TreeHealth>,
}

#[derive(Serialize)]
struct TreeHealth {
    name: String,
    revision: u64,
    expires: i64,
    served: bool,
}

impl StatusSource for MountReport {
    fn metrics(&self) -> String {
        let mut page = Exposition::of_daemon();
        write_metrics(&self.monitor.status(), &mut page);
        self.audit.iter().for_each(|audit| audit.write_metrics(&mut page));
        page.into_text()
    }

    fn health(&self, _: u64) -> (bool, String) {
        let trees: Vec<_> = self.monitor.status().trees.into_iter().map(TreeHealth::from).collect();
        let healthy = trees.iter().all(|tree| tree.served)
            && self.audit.as_ref().is_none_or(|audit| audit.is_healthy());
        let json = serde_json::to_string(&Health { healthy, trees })
            .unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
        (healthy, json + "\n")
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus::of_process(DaemonKind::Mount, &self.monitor.status())
    }
}

impl From<TreeStatus> for TreeHealth {
    fn from(tree: TreeStatus) -> Self {
        Self {
            name: tree.name,
            revision: tree.revision,
            expires: tree.expires,
            served: tree.served,
        }
    }
}

pub(crate) struct ReportServer {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl ReportServer {
    pub(crate) fn start(listeners: StatusListeners, report: MountReport) -> Outcome<Self> {
        let (stop, report) = (Arc::new(Notify::new()), Arc::new(report));
        let stopped = stop.clone();
        let serve = move || status_server::run(listeners, &report, &stopped);
        let thread =
            std::thread::Builder::new().name("status".into()).spawn(serve).at("a thread")?;
        Ok(ReportServer { stop, thread: Some(thread) })
    }
}

impl Drop for ReportServer {
    fn drop(&mut self) {
        self.stop.notify_one();
        // A failure of the page is no failure of the mount.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write_metrics(status: &MountStatus, page: &mut Exposition) {
    let point = status.point.to_string_lossy();
    let mount = ("mount", &*point);
    let disk = status.disk_cache.as_ref();
    let mut gauge = |name, help, value: u64| {
        page.by((name, Metric::Gauge, help), "mount", [(&point, value)]);
    };
    gauge("vouch_mount_nodes", "Files that the kernel knows.", status.nodes as u64);
    let help = "Whether the kernel may read cached files directly.";
    gauge("vouch_mount_passthrough", help, status.passthrough.into());
    let help = "Open files that the kernel reads directly.";
    gauge("vouch_mount_passthrough_files", help, status.passed_through as u64);
    let help = "Memory of verified frames.";
    gauge("vouch_mount_memory_cache_bytes", help, status.memory_cache_bytes);
    let help = "Space of the disk cache.";
    gauge("vouch_mount_disk_cache_bytes", help, disk.map_or(0, |disk| disk.bytes));
    let help = "Quota of the disk cache; 0 without one.";
    gauge("vouch_mount_disk_cache_quota_bytes", help, disk.map_or(0, |disk| disk.quota_bytes));
    let name = "vouch_mount_requests_total";
    page.family(name, Metric::Counter, "Requests of the kernel, by operation.");
    for count in &status.requests {
        let all = count.done + count.failed;
        page.sample(name, &[mount, ("operation", &count.operation)], all);
    }
    let name = "vouch_mount_requests_failed_total";
    let help = "Requests that failed for another reason than a missing name, by operation.";
    page.family(name, Metric::Counter, help);
    for count in &status.requests {
        page.sample(name, &[mount, ("operation", &count.operation)], count.failed);
    }
    for (name, kind, help, value) in TREE_SAMPLES {
        page.family(name, kind, help);
        for tree in &status.trees {
            page.sample(name, &[mount, ("tree", &tree.name)], value(tree));
        }
    }
    let name = "vouch_mount_frames_total";
    let help = "Frames that were read, by source: the hit rate of the caches.";
    page.family(name, Metric::Counter, help);
    for tree in &status.trees {
        let sources = [
            ("memory", tree.frames_from_memory),
            ("disk", tree.frames_from_disk),
            ("network", tree.frames_from_network),
        ];
        for (source, count) in sources {
            page.sample(name, &[mount, ("tree", &tree.name), ("source", source)], count);
        }
    }
    for (name, kind, help, value) in REPLICA_SAMPLES {
        page.family(name, kind, help);
        for (tree, replica) in status
            .trees
            .iter()
            .flat_map(|tree| tree.replicas.iter().map(move |replica| (tree, replica)))
        {
            let Some(value) = value(replica) else { continue };
            page.sample(
                name,
                &[mount, ("tree", &tree.name), ("replica", &replica_label(replica))],
                value,
            );
        }
    }
}

fn replica_label(replica: &ReplicaReport) -> String {
    if replica.host.contains("://") {
        replica.host.clone()
    } else {
        format!("{} {}", replica.host, replica.address)
    }
}

type TreeSample = (&'static str, Metric, &'static str, fn(&TreeStatus) -> f64);

const TREE_SAMPLES: [TreeSample; 8] = [
    ("vouch_mount_tree_revision", Metric::Gauge, "Revision that is shown.", |tree| {
        tree.revision as f64
    }),
    ("vouch_mount_tree_expiry_timestamp_seconds", Metric::Gauge, "End of its validity.", |tree| {
        tree.expires as f64
    }),
    (
        "vouch_mount_tree_served",
        Metric::Gauge,
        "Whether the tree can be read; 0 if it has expired or was revoked.",
        |tree| f64::from(u8::from(tree.served)),
    ),
    (
        "vouch_mount_tree_quorum_timestamp_seconds",
        Metric::Gauge,
        "Time of its witnesses' quorum; 0 if no witnesses are demanded.",
        |tree| tree.witnesses.as_ref().map_or(0.0, |found| found.quorum_time as f64),
    ),
    (
        "vouch_mount_received_bytes_total",
        Metric::Counter,
        "Verified bytes from replicas.",
        |tree| tree.network_bytes as f64,
    ),
    (
        "vouch_mount_verify_seconds_total",
        Metric::Counter,
        "Time spent on hashing frames from replicas.",
        |tree| tree.verify_seconds,
    ),
    (
        "vouch_mount_hedges_total",
        Metric::Counter,
        "Requests to a second replica because the first was late.",
        |tree| tree.hedges as f64,
    ),
    (
        "vouch_mount_refreshes_total",
        Metric::Counter,
        "Rounds that asked for a newer revision.",
        |tree| tree.refreshes as f64,
    ),
];

type ReplicaSample = (&'static str, Metric, &'static str, fn(&ReplicaReport) -> Option<f64>);

const REPLICA_SAMPLES: [ReplicaSample; 6] = [
    (
        "vouch_mount_replica_up",
        Metric::Gauge,
        "Whether the replica answers and has sent no wrong data lately.",
        |replica| Some(f64::from(u8::from(replica.is_up()))),
    ),
    (
        "vouch_mount_replica_latency_seconds",
        Metric::Gauge,
        "Mean latency, weighted to recent calls.",
        |replica| replica.latency_seconds,
    ),
    (
        "vouch_mount_replica_revision",
        Metric::Gauge,
        "Newest revision that the replica offers.",
        |replica| Some(replica.revision as f64),
    ),
    ("vouch_mount_replica_calls_total", Metric::Counter, "Calls to the replica.", |replica| {
        Some(replica.calls as f64)
    }),
    ("vouch_mount_replica_calls_failed_total", Metric::Counter, "Calls that failed.", |replica| {
        Some(replica.failed_calls as f64)
    }),
    (
        "vouch_mount_replica_lies_total",
        Metric::Counter,
        "Times that the replica sent provably wrong data.",
        |replica| Some(replica.lies as f64),
    ),
];
