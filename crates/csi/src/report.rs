//! Metrics, health and status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;

use crate::mount_spec::is_of_export;
use crate::mounts::Mounts;
use crate::provisioned::ProvisionedVolumes;
use crate::records::Volume;

pub(crate) struct Report {
    pub(crate) driver_name: String,
    pub(crate) node_id: String,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) volumes: Arc<ProvisionedVolumes>,
    pub(crate) calls: Arc<Calls>,
}

/// Calls by method and gRPC status.
#[derive(Default)]
pub(crate) struct Calls(Mutex<BTreeMap<(&'static str, i32), u64>>);

impl Calls {
    pub(crate) fn count(&self, method: &'static str, code: i32) {
        *self.0.lock().entry((method, code)).or_default() += 1;
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CsiStatus {
    pub driver: String,
    pub node: String,
    /// Mounted for pods of this node.
    pub trees: usize,
    pub published_trees: usize,
    pub published_exports: usize,
    /// Made by this controller.
    pub volumes: usize,
    pub healed: u64,
    /// Mounts that can't be made again, and why.
    pub faults: Vec<String>,
}

impl Report {
    fn csi_status(&self) -> CsiStatus {
        let records = self.mounts.records.all();
        let trees = records.iter().filter(|record| matches!(record.volume, Volume::Tree { .. }));
        let trees = trees.count();
        CsiStatus {
            driver: self.driver_name.clone(),
            node: self.node_id.clone(),
            trees: self.mounts.keys().iter().filter(|key| !is_of_export(key)).count(),
            published_trees: trees,
            published_exports: records.len() - trees,
            volumes: self.volumes.all().len(),
            healed: self.mounts.counters.healed.load(Ordering::Relaxed),
            faults: self.mounts.faults.lock().values().cloned().collect(),
        }
    }
}

impl StatusSource for Report {
    fn metrics(&self) -> String {
        let (mut page, status, counters) =
            (Exposition::of_daemon(), self.csi_status(), &self.mounts.counters);
        vouch_daemon::metrics! { page;
            Gauge "vouch_csi_trees" "Trees with a mount on this node." = status.trees;
            Gauge "vouch_csi_faults" "Mounts in use that are dead and cannot be made again." = status.faults.len();
            Gauge "vouch_csi_volumes" "Volumes made by this controller." = status.volumes;
            Counter "vouch_csi_mounts_total" "Mounts of trees and exports."
                = counters.mounted.load(Ordering::Relaxed);
            Counter "vouch_csi_mount_failures_total" "Mounts that failed."
                = counters.failed.load(Ordering::Relaxed);
            Counter "vouch_csi_healed_total" "Dead mounts that were made again."
                = status.healed;
        }
        page.family("vouch_csi_published", Metric::Gauge, "Volumes of pods on this node.");
        page.sample("vouch_csi_published", &[("kind", "tree")], status.published_trees);
        page.sample("vouch_csi_published", &[("kind", "export")], status.published_exports);
        page.family(
            "vouch_csi_calls_total",
            Metric::Counter,
            "Calls, by method and status of gRPC.",
        );
        for ((method, code), count) in &*self.calls.0.lock() {
            page.sample(
                "vouch_csi_calls_total",
                &[("method", method), ("code", &code.to_string())],
                count,
            );
        }
        page.into_text()
    }

    fn health(&self, _: u64) -> (bool, String) {
        let status = self.csi_status();
        let text = serde_json::to_string(&status).unwrap_or_default() + "\n";
        (status.faults.is_empty(), text)
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus::of_process(DaemonKind::Csi, &self.csi_status())
    }
}
