use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use vouch_tree_client::{Client, ReplicaState, Tree};

use crate::observer::Operation;
use crate::state::{MountKind, MountState};
use crate::volume::Volume;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MountStatus {
    pub point: PathBuf,
    /// Known to the kernel.
    pub nodes: usize,
    pub passthrough: bool,
    pub passed_through: usize,
    pub requests: Vec<RequestCount>,
    pub memory_cache_bytes: u64,
    pub disk_cache: Option<DiskCacheStatus>,
    pub trees: Vec<TreeStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCount {
    pub operation: String,
    pub done: u64,
    pub failed: u64,
}

/// Shared by the process. Several processes may share a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCacheStatus {
    pub directory: PathBuf,
    pub bytes: u64,
    pub quota_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeStatus {
    pub name: String,
    pub revision: u64,
    /// Seconds since 1970.
    pub expires: i64,
    pub served: bool,
    /// Reason if the tree is not served.
    pub trouble: Option<String>,
    /// Of the newest revision, if a policy demands witnesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnesses: Option<WitnessReport>,
    pub frames_from_memory: u64,
    pub frames_from_disk: u64,
    pub frames_from_network: u64,
    pub network_bytes: u64,
    pub verify_seconds: f64,
    pub hedges: u64,
    pub refreshes: u64,
    pub replicas: Vec<ReplicaReport>,
}

/// Times are seconds since 1970, of the cosignatures that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WitnessReport {
    pub cosigned: usize,
    pub witnesses: usize,
    pub oldest: u64,
    pub newest: u64,
    /// The quorum of the strictest policy had seen no larger log by then.
    pub quorum_time: u64,
}

impl WitnessReport {
    fn of(tree: &Tree) -> Option<Self> {
        let found = tree.witnessing()?;
        Some(Self {
            cosigned: found.cosigned,
            witnesses: found.witnesses,
            oldest: found.oldest?,
            newest: found.newest?,
            quorum_time: found.quorum_time?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaReport {
    pub host: String,
    pub address: String,
    pub state: String,
    pub latency_seconds: Option<f64>,
    pub revision: u64,
    pub calls: u64,
    pub failed_calls: u64,
    pub lies: u64,
    pub last_error: Option<String>,
}

impl ReplicaReport {
    pub fn is_up(&self) -> bool {
        [ReplicaState::Up, ReplicaState::Slow, ReplicaState::Stale]
            .iter()
            .any(|state| state.to_string() == self.state)
    }
}

#[derive(Clone)]
pub struct MountMonitor {
    pub(crate) point: PathBuf,
    pub(crate) state: Arc<MountState>,
}

impl MountMonitor {
    pub fn status(&self) -> MountStatus {
        self.state.status(&self.point)
    }
}

impl MountState {
    pub(crate) fn status(&self, point: &Path) -> MountStatus {
        let volumes = match &self.kind {
            MountKind::Tree(volume) => vec![volume.clone()],
            MountKind::Namespace(namespace) => namespace.volumes(),
        };
        let client = self.client();
        let usage = client.cache_usage();
        MountStatus {
            point: point.to_owned(),
            nodes: self.table.len(),
            passthrough: self.open_files.is_on(),
            passed_through: self.open_files.passthrough_count(),
            requests: self.request_counts.read(),
            memory_cache_bytes: usage.memory_bytes,
            disk_cache: client.disk_cache_directory().map(|directory| DiskCacheStatus {
                directory: directory.to_owned(),
                bytes: usage.disk_bytes,
                quota_bytes: usage.disk_quota_bytes,
            }),
            trees: volumes.iter().map(|volume| tree_status(volume)).collect(),
        }
    }

    fn client(&self) -> &Arc<Client> {
        match &self.kind {
            MountKind::Tree(volume) => volume.tree().client(),
            MountKind::Namespace(namespace) => namespace.client(),
        }
    }
}

fn tree_status(volume: &Volume) -> TreeStatus {
    let (shown, tree) = (volume.shown(), volume.tree());
    let counters = tree.counters();
    TreeStatus {
        name: volume.label().to_owned(),
        revision: shown.number(),
        expires: shown.expires(),
        served: volume.is_fresh(),
        trouble: tree.revision().err().map(|error| error.to_string()),
        witnesses: WitnessReport::of(tree),
        frames_from_memory: counters.memory_frames,
        frames_from_disk: counters.disk_frames,
        frames_from_network: counters.network_frames,
        network_bytes: counters.network_bytes,
        verify_seconds: counters.verify_ns as f64 / 1e9,
        hedges: counters.hedges,
        refreshes: counters.refreshes,
        replicas: tree
            .replicas()
            .into_iter()
            .map(|replica| ReplicaReport {
                address: replica.address.to_string(),
                host: replica.host,
                state: replica.state.to_string(),
                latency_seconds: replica.latency.map(|latency| latency.as_secs_f64()),
                revision: replica.revision,
                calls: replica.asked,
                failed_calls: replica.failed,
                lies: replica.lied,
                last_error: replica.last_error,
            })
            .collect(),
    }
}

#[derive(Default)]
pub(crate) struct RequestCounts([[AtomicU64; 2]; OPERATIONS.len()]);

impl RequestCounts {
    pub(crate) fn count(&self, operation: Operation, has_failed: bool) {
        self.0[operation as usize][usize::from(has_failed)].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Vec<RequestCount> {
        let count = |(number, name): (usize, &&str)| RequestCount {
            operation: (*name).to_owned(),
            done: self.0[number][0].load(Ordering::Relaxed),
            failed: self.0[number][1].load(Ordering::Relaxed),
        };
        OPERATIONS.iter().enumerate().map(count).collect()
    }
}

/// Sorted like [`Operation`].
const OPERATIONS: [&str; Operation::Close as usize + 1] = [
    "lookup",
    "getattr",
    "readlink",
    "readdir",
    "getxattr",
    "listxattr",
    "open",
    "read",
    "lseek",
    "release",
];
