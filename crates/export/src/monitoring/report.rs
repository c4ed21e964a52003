//! What the server tells: metrics for Prometheus, health, and the status that `vouch export status`
//! shows.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::monitoring::status::{ClientStatus, ErrorStatus, Status};

use crate::clock;
use crate::driver::Driver;
use crate::monitoring::operation_metrics::{Metrics, line};
use vouch_daemon::metrics_page::PageSource;

/// Everything that can be told.
pub(crate) struct Report {
    pub(crate) driver: Arc<Driver>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Report {
    /// The status now.
    pub(crate) fn status(&self) -> Status {
        let report = self.driver.engine.status(clock::now());
        let (totals, quotas) = (self.driver.engine.totals(clock::now()).0, &self.driver.quotas);
        let (waiting_calls, waiting_threads) = waiting(&self.driver);
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            grace_left_ms: report.grace_left_ms,
            connections: self.open(),
            waiting_calls,
            waiting_threads,
            held_back: quotas.calls.refusals.get() + quotas.waiting_len.refusals.get() + quotas.held.refusals.get(),
            clients_displaced: totals.clients_displaced,
            clients_refused: totals.clients_refused,
            copies: report.copies,
            exports: self.driver.exports.lock().clone(),
            clients: report
                .clients
                .into_iter()
                .map(|client| ClientStatus {
                    id: format!("{:016x}", client.id),
                    owner: client.owner,
                    address: client.peer.map(|peer| peer.to_string()),
                    minor_version: client.minor,
                    implementation: client.implementation,
                    courtesy: client.courtesy,
                    silent_ms: client.silent_ms,
                    sessions: client.sessions,
                    opens: client.opens,
                    locks: client.locks,
                    delegations: client.delegations,
                    callbacks: client.callbacks,
                })
                .collect(),
            recent_errors: report
                .recent_errors
                .into_iter()
                .map(|error| ErrorStatus {
                    at_seconds: error.at_seconds,
                    address: error.peer.to_string(),
                    operation: error.operation.to_owned(),
                    status: error.status,
                    export: error.export,
                    message: error.message,
                })
                .collect(),
        }
    }

    fn open(&self) -> usize {
        self.driver.open.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl PageSource for Report {
    fn metrics(&self) -> String {
        let mut out = String::with_capacity(16 * 1024);
        let (totals, grace_left_ms) = self.driver.engine.totals(clock::now());
        let (waiting, threads) = waiting(&self.driver);
        let gauges: [(&str, &str, usize); 13] = [
            ("vouch_export_connections", "Connections open now.", self.open()),
            ("vouch_export_clients", "Clients with state.", totals.clients),
            ("vouch_export_sessions", "Sessions.", totals.sessions),
            ("vouch_export_kept_replies_bytes", "Bytes of session slots and of replies kept for retries.", totals.reply_cache_len),
            ("vouch_export_opens", "Opens.", totals.opens),
            ("vouch_export_locks", "Byte-range locks.", totals.locks),
            ("vouch_export_delegations", "Delegations.", totals.delegations),
            ("vouch_export_waiting_calls", "Calls that wait for a disk, a commit or the name service.", waiting),
            ("vouch_export_waiting_threads", "Threads that wait in the place of those that serve.", threads),
            ("vouch_export_waiting_calls_bytes", "Memory kept for calls that wait.", self.driver.quotas.waiting_len.used()),
            ("vouch_export_incomplete_calls_bytes", "Memory kept for calls that have not come whole.", self.driver.quotas.held.used()),
            ("vouch_export_connections_naming", "Connections that wait for the name of their host.", self.driver.host_lookups.waiting()),
            ("vouch_export_grace", "Whether the grace period lasts.", usize::from(grace_left_ms > 0)),
        ];
        for (metric, help, value) in gauges {
            line(&mut out, metric, help, "gauge");
            let _ = writeln!(out, "{metric} {value}");
        }
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        line(&mut out, "process_cpu_seconds_total", "CPU time of this process, user and system.", "counter");
        let _ = writeln!(out, "process_cpu_seconds_total {}.{:06}", cpu.tv_sec, cpu.tv_nsec / 1000);
        let traffic = &self.driver.traffic;
        let live: u64 = self.driver.connections.lock().values().map(|connection| connection.sent_len()).sum();
        let counters: [(&str, &str, u64); 19] = [
            ("vouch_export_connections_accepted_total", "Connections accepted.", traffic.accepted.get()),
            ("vouch_export_connections_refused_total", "Connections refused by a limit.", traffic.refused.get()),
            ("vouch_export_connections_closed_total", "Connections closed, for whatever reason.", traffic.closed.get()),
            ("vouch_export_connections_broken_total", "Connections closed because the peer broke RPC.", traffic.closed_broken.get()),
            (
                "vouch_export_connections_slow_total",
                "Connections closed because the peer neither sent nor took what it began.",
                traffic.closed_slow.get(),
            ),
            (
                "vouch_export_connections_unnamed_total",
                "Connections closed because the name of their host was not found in time.",
                traffic.unnamed.get(),
            ),
            ("vouch_export_clients_displaced_total", "Clients that had to make room for others.", totals.clients_displaced),
            ("vouch_export_clients_refused_total", "Introductions of clients for which there was no room.", totals.clients_refused),
            (
                "vouch_export_held_back_total",
                "Times that a connection was not read because too many calls of its address, or of all, were waiting.",
                self.driver.quotas.calls.refusals.get() + self.driver.quotas.waiting_len.refusals.get(),
            ),
            (
                "vouch_export_incomplete_held_back_total",
                "Times that a call was not read on because too much was kept of incomplete ones of its address, or of all.",
                self.driver.quotas.held.refusals.get(),
            ),
            ("vouch_export_calls_total", "Calls received.", traffic.calls.get()),
            ("vouch_export_calls_blocked_total", "Calls that had to wait for a disk or a network.", traffic.blocked.get()),
            ("vouch_export_received_bytes_total", "Bytes received.", traffic.received_len.get()),
            ("vouch_export_sent_bytes_total", "Bytes sent.", traffic.sent_len.get() + live),
            ("vouch_export_callbacks_total", "Callbacks sent.", traffic.callbacks.get()),
            ("vouch_export_callbacks_failed_total", "Callbacks that were not answered.", traffic.callbacks_failed.get()),
            ("vouch_export_reloads_total", "Times that the list of exports was read anew.", traffic.reloads.get()),
            ("vouch_export_reloads_failed_total", "Times that a new list was faulty and the old one stayed.", traffic.reloads_failed.get()),
            ("vouch_export_recovery_failures_total", "Times that the disk refused recovery records.", self.driver.recovery.failures()),
        ];
        for (metric, help, value) in counters {
            line(&mut out, metric, help, "counter");
            let _ = writeln!(out, "{metric} {value}");
        }
        if let Some(gss) = &self.driver.gss {
            gss.write(&mut out);
        }
        self.metrics.write(&mut out);
        self.driver.audit.iter().for_each(|audit| audit.write(&mut out));
        out
    }

    fn health(&self, _: u64) -> (bool, String) {
        let healthy = !self.driver.stop.load(Ordering::Relaxed);
        (healthy, format!("{{\"status\":\"{}\",\"connections\":{}}}\n", if healthy { "ok" } else { "stopping" }, self.open()))
    }
}

/// Calls that wait for a disk or a network, those that a thread is at among them; and threads for
/// it.
fn waiting(driver: &Driver) -> (usize, usize) {
    (driver.quotas.calls.used(), driver.pool.load().1 + driver.names.load().1)
}
