//! Status, metrics in Prometheus text format, health as JSON.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;

use crate::mount::Mount;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NfsMountStatus {
    /// Host and path.
    pub source: String,
    pub point: PathBuf,
    /// Files that the kernel knows.
    pub nodes: usize,
    pub open_files: usize,
    /// Written data that the server has not confirmed as durable.
    pub unwritten_bytes: u64,
    /// Requests of the kernel.
    pub requests: u64,
    /// Those that failed for another reason than a missing name.
    pub requests_failed: u64,
    /// Of the session, after a lost connection or a restart of the server.
    pub recoveries: u64,
    /// Seconds since the server's last answer. It is asked several times in each lease.
    pub silent_s: u64,
    pub lease_s: u64,
}

/// Of a mount, for its status server.
pub struct NfsMountReport {
    pub(crate) mount: Arc<Mount>,
    pub(crate) point: PathBuf,
    pub(crate) lease_s: u64,
}

impl NfsMountReport {
    fn detail(&self) -> NfsMountStatus {
        let (mount, count) = (&self.mount, |counter: &AtomicU64| counter.load(Ordering::Relaxed));
        NfsMountStatus {
            source: mount.options.source.clone(),
            point: self.point.clone(),
            nodes: mount.inodes.len(),
            open_files: mount.session.files.lock().len(),
            unwritten_bytes: mount.unwritten_bytes(),
            requests: count(&mount.counters.requests),
            requests_failed: count(&mount.counters.failed),
            recoveries: mount.session.recovery_count(),
            silent_s: mount.session.silence().as_secs(),
            lease_s: self.lease_s,
        }
    }
}

impl NfsMountStatus {
    /// A server that has not answered for a lease may have ended the mount's opens and locks.
    pub fn is_server_silent(&self) -> bool {
        self.silent_s > self.lease_s
    }
}

impl StatusSource for NfsMountReport {
    fn metrics(&self) -> String {
        let (mut page, status) = (Exposition::of_daemon(), self.detail());
        let point = status.point.to_string_lossy();
        let rows = [
            (
                "vouch_nfs_mount_nodes",
                Metric::Gauge,
                "Files that the kernel knows.",
                status.nodes as u64,
            ),
            ("vouch_nfs_mount_open_files", Metric::Gauge, "Open files.", status.open_files as u64),
            (
                "vouch_nfs_mount_unwritten_bytes",
                Metric::Gauge,
                "Written data that the server has not confirmed as durable.",
                status.unwritten_bytes,
            ),
            (
                "vouch_nfs_mount_silent_seconds",
                Metric::Gauge,
                "Time since the server's last answer.",
                status.silent_s,
            ),
            (
                "vouch_nfs_mount_requests_total",
                Metric::Counter,
                "Requests of the kernel.",
                status.requests,
            ),
            (
                "vouch_nfs_mount_requests_failed_total",
                Metric::Counter,
                "Requests that failed for another reason than a missing name.",
                status.requests_failed,
            ),
            (
                "vouch_nfs_mount_recoveries_total",
                Metric::Counter,
                "Recoveries of the session.",
                status.recoveries,
            ),
        ];
        for (name, kind, help, value) in rows {
            page.family(name, kind, help);
            page.sample(name, &[("mount", &*point)], value);
        }
        page.into_text()
    }

    fn health(&self, _: u64) -> (bool, String) {
        let status = self.detail();
        let text = serde_json::to_string(&status).unwrap_or_default() + "\n";
        (!status.is_server_silent(), text)
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus::of_process(DaemonKind::NfsMount, &self.detail())
    }
}
