//! Metrics in Prometheus text format, health and status as JSON.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;

use crate::event::AlarmKind;
use crate::state::Alarm;

/// One tree after a round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeStatus {
    /// Its name.
    pub tree: String,
    /// Entries of the log that are verified; 0 for a tree without a log.
    pub entries: u64,
    /// The newest revision.
    pub revision: u64,
    /// Until when the log is known to be alive, in seconds since 1970.
    pub fresh: u64,
    /// Rounds that have ended without an error since the start.
    #[serde(default)]
    pub rounds: u64,
    /// End of the last round, in seconds since 1970.
    pub checked: u64,
    /// Replicas asked, and those whose answer could be used.
    pub replicas: usize,
    /// See `replicas`.
    pub good_replicas: usize,
    /// Witnesses asked, and those whose answer could be used.
    #[serde(default)]
    pub witnesses: usize,
    /// See `witnesses`.
    #[serde(default)]
    pub good_witnesses: usize,
    /// In force.
    pub alarms: Vec<Alarm>,
    /// Why the last round could not be finished.
    pub error: Option<String>,
}

/// All trees.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MonitorStatus {
    /// In the order of the command line.
    pub trees: Vec<TreeStatus>,
}

/// Shared between the rounds and the status page.
#[derive(Debug)]
pub struct Report {
    trees: Mutex<Vec<TreeStatus>>,
    interval_s: u64,
}

#[derive(Serialize)]
struct Health<'a> {
    healthy: bool,
    trees: &'a [TreeStatus],
}

impl Report {
    /// Before the first round.
    pub fn new(names: impl Iterator<Item = String>, interval_s: u64) -> Self {
        let trees = names.map(|tree| TreeStatus { tree, ..TreeStatus::default() }).collect();
        Self { trees: Mutex::new(trees), interval_s }
    }

    /// After a round of tree `number`.
    pub fn set(&self, number: usize, status: TreeStatus) {
        if let Some(tree) = self.trees.lock().get_mut(number) {
            *tree = TreeStatus { rounds: tree.rounds + 1, ..status };
        }
    }

    /// A round has failed; what the last one has found still holds.
    pub fn set_error(&self, number: usize, error: String) {
        if let Some(tree) = self.trees.lock().get_mut(number) {
            tree.error = Some(error);
        }
    }

    fn is_healthy(&self, tree: &TreeStatus, now_s: u64) -> bool {
        let late_s = now_s.saturating_sub(tree.checked);
        tree.alarms.is_empty()
            && tree.error.is_none()
            && tree.good_replicas > 0
            && late_s <= self.interval_s.saturating_mul(2).saturating_add(ROUND_S_MAX)
    }
}

impl StatusSource for Report {
    fn metrics(&self) -> String {
        let mut page = Exposition::of_daemon();
        let trees = self.trees.lock();
        type Value = fn(&TreeStatus) -> u64;
        let gauges: [(&str, &str, Value); 8] = [
            ("vouch_monitor_entries", "Verified entries of the log.", |tree| tree.entries),
            ("vouch_monitor_revision", "The newest revision.", |tree| tree.revision),
            (
                "vouch_monitor_fresh_timestamp_seconds",
                "Until when the log is known to be alive.",
                |tree| tree.fresh,
            ),
            ("vouch_monitor_checked_timestamp_seconds", "When the last round ended.", |tree| {
                tree.checked
            }),
            ("vouch_monitor_replicas", "Replicas asked in the last round.", |tree| {
                tree.replicas as u64
            }),
            ("vouch_monitor_replicas_good", "Replicas whose answer could be used.", |tree| {
                tree.good_replicas as u64
            }),
            ("vouch_monitor_witnesses", "Witnesses asked in the last round.", |tree| {
                tree.witnesses as u64
            }),
            ("vouch_monitor_witnesses_good", "Witnesses whose answer could be used.", |tree| {
                tree.good_witnesses as u64
            }),
        ];
        for (name, help, value) in gauges {
            let values = trees.iter().map(|tree| (hostid(tree), value(tree)));
            page.by((name, Metric::Gauge, help), "tree", values);
        }
        let rounds = trees.iter().map(|tree| (hostid(tree), tree.rounds));
        let help = "Rounds that have ended without an error.";
        page.by(("vouch_monitor_rounds_total", Metric::Counter, help), "tree", rounds);
        page.family("vouch_monitor_alarms", Metric::Gauge, "Alarms in force, by kind.");
        for tree in &*trees {
            for kind in AlarmKind::ALL {
                let count = tree.alarms.iter().filter(|alarm| alarm.kind == kind).count();
                let labels = [("tree", hostid(tree)), ("kind", kind.name())];
                page.sample("vouch_monitor_alarms", &labels, count);
            }
        }
        page.into_text()
    }

    fn health(&self, now_s: u64) -> (bool, String) {
        let trees = self.trees.lock();
        let healthy = trees.iter().all(|tree| self.is_healthy(tree, now_s));
        let health = Health { healthy, trees: &trees };
        (healthy, serde_json::to_string(&health).unwrap_or_default() + "\n")
    }

    fn status(&self) -> DaemonStatus {
        let status = MonitorStatus { trees: self.trees.lock().clone() };
        DaemonStatus::of_process(DaemonKind::Monitor, &status)
    }
}

/// As in the metrics of other daemons.
fn hostid(tree: &TreeStatus) -> &str {
    tree.tree.rsplit_once(',').map_or(&*tree.tree, |(_, hostid)| hostid)
}

/// A round that takes longer is late.
const ROUND_S_MAX: u64 = 600;
