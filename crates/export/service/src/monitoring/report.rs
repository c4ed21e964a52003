use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vouch_daemon::printable::printable;
use vouch_nfs4_server::{StateTotals, Transport};
use vouch_vfs::{Quota, QuotaEnforcement};

use crate::exports::reload::Reloader;
use crate::monitoring::status::{
    AwaitedStatus, ClientStatus, ErrorStatus, ExportStatus, HeadRole, HeadStatus, QuotaStatus,
    SiteStatus, Status, TlsStatus,
};
use crate::tls::{Tls, days_left};

use crate::clock;
use crate::driver::Driver;
use crate::management::grpc::RemoteAccess;
use crate::management::manager::Manager;
use crate::management::{Administrator, Order};
use crate::monitoring::operation_metrics::Metrics;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_client::OrderError;
use vouch_daemon::status_server::StatusSource;

pub(crate) struct Report {
    pub(crate) driver: Arc<Driver>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) manager: Manager,
    pub(crate) site: SiteStatus,
    /// Name and epoch of this head of a shared state directory.
    pub(crate) head: Option<(String, u64)>,
}

impl Report {
    pub(crate) fn status(&self) -> Status {
        let report = self.driver.engine.status(clock::now());
        let (totals, quotas) = (self.driver.engine.totals(clock::now()).0, &self.driver.quotas);
        let (waiting_calls, waiting_threads) = waiting(&self.driver);
        let transports = self.transports();
        let (name_service, mut refusals) = self.reloader.accounts.status();
        refusals.extend(self.driver.client_faults.recent());
        refusals.extend(self.driver.gss.iter().flat_map(|gss| gss.refused.status()));
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            site: self.site.clone(),
            head: self.head(),
            grace_left_ms: report.grace_left_ms,
            draining: self.driver.is_draining.load(Ordering::Relaxed),
            awaited: report
                .awaited
                .into_iter()
                .map(|awaited| AwaitedStatus {
                    owner: awaited.owner,
                    address: awaited.address,
                    is_v40: awaited.is_v40,
                    is_back: awaited.is_back,
                })
                .collect(),
            connections: self.open(),
            waiting_calls,
            waiting_threads,
            held_back: quotas.calls.refusals.get()
                + quotas.waiting_len.refusals.get()
                + quotas.held.refusals.get(),
            clients_displaced: totals.clients_displaced,
            clients_refused: totals.clients_refused,
            name_conflicts: totals.name_conflicts,
            delegations_revoked: totals.delegations_revoked,
            copies: report.copies,
            tls: self.tls_status(),
            name_service,
            refusals,
            qos: self.driver.qos.status(),
            exports: self.exports(),
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
                    xprtsec: client
                        .peer
                        .and_then(|peer| transports.get(&peer))
                        .map(|one| one.transport().name().to_owned()),
                    certificate: client
                        .peer
                        .and_then(|peer| transports.get(&peer)?.tls()?.certificate.as_ref())
                        .map(|certificate| certificate.name.clone()),
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

    fn exports(&self) -> Vec<ExportStatus> {
        let mut exports = self.driver.exports.lock().clone();
        for (id, _, quota) in self.driver.engine.quotas() {
            let enforced_by = match quota.enforced_by {
                QuotaEnforcement::FileSystem => "project",
                QuotaEnforcement::Server => "server",
            };
            for export in exports.iter_mut().filter(|export| export.id == id.0) {
                let (used, limit, enforced_by) = (quota.used, quota.limit, enforced_by.to_owned());
                export.quota = Some(QuotaStatus { used, limit, enforced_by });
            }
        }
        exports
    }

    fn write_quotas(&self, page: &mut Exposition) {
        let quotas = self.driver.engine.quotas();
        let mut family = |name, help, value: fn(&Quota) -> u64| {
            page.family(name, Metric::Gauge, help);
            for (_, source, quota) in &quotas {
                page.sample(name, &[("export", &printable(source.as_bytes()))], value(quota));
            }
        };
        let used = "Space that an export with quota= uses.";
        family("vouch_export_quota_used_bytes", used, |quota| quota.used);
        family("vouch_export_quota_limit_bytes", "quota= of an export.", |quota| quota.limit);
    }

    fn head(&self) -> Option<HeadStatus> {
        let ((head, epoch), right) = (self.head.clone()?, self.driver.right.as_ref()?);
        Some(HeadStatus {
            head,
            role: HeadRole::Active,
            epoch,
            holder: None,
            lease_left_ms: right.left_ms(),
        })
    }

    fn write_head(&self, page: &mut Exposition) {
        let Some(head) = self.head() else { return };
        vouch_daemon::metrics! { page;
            Gauge "vouch_export_head_active"
                "1 if this head serves the shared state directory, 0 for a standby." = 1;
            Gauge "vouch_export_head_epoch" "Epoch of the shared state directory." = head.epoch;
            Gauge "vouch_export_head_lease_left_milliseconds"
                "Rest of the lease, if no renewal succeeds." = head.lease_left_ms;
        }
    }

    fn transports(&self) -> HashMap<SocketAddr, Arc<vouch_nfs4_server::Connection>> {
        self.driver
            .connections
            .lock()
            .values()
            .map(|one| (one.peer(), one.engine().clone()))
            .collect()
    }

    fn tls_status(&self) -> Option<TlsStatus> {
        let tls = self.driver.tls.as_ref()?;
        let credentials = tls.live.credentials();
        let (sessions, mutual) = self.tls_sessions();
        Some(TlsStatus {
            certificate: credentials.certificate.name.clone(),
            fingerprint: credentials.certificate.fingerprint_text(),
            not_after: credentials.certificate.valid.end,
            days_left: days_left(&credentials),
            revocation_overdue: tls.live.is_revocation_overdue(),
            tls: sessions,
            mtls: mutual,
            handshakes: tls.handshakes.get(),
            refused: tls.handshakes_failed.get(),
        })
    }

    fn tls_sessions(&self) -> (usize, usize) {
        let connections = self.driver.connections.lock();
        let count = |transport| {
            connections.values().filter(|one| one.engine().transport() == transport).count()
        };
        (count(Transport::Tls), count(Transport::MutualTls))
    }

    fn write_tls(&self, tls: &Tls, page: &mut Exposition) {
        let ((sessions, mutual), credentials) = (self.tls_sessions(), tls.live.credentials());
        let by_xprtsec = "Open connections over TLS, by xprtsec.";
        let family = ("vouch_export_tls_sessions", Metric::Gauge, by_xprtsec);
        page.by(family, "xprtsec", [("tls", sessions), ("mtls", mutual)]);
        let handshaking = tls.in_handshake.load(Ordering::Relaxed) as i64;
        vouch_daemon::metrics! { page;
            Gauge "vouch_export_tls_handshakes_open" "TLS handshakes in progress." = handshaking;
            Gauge "vouch_export_tls_certificate_expiry_timestamp_seconds"
                "End of validity of the server's certificate." = credentials.certificate.valid.end;
            Gauge "vouch_export_tls_revocation_overdue"
                "1 if a list of revoked certificates is older than its next update."
                = u8::from(tls.live.is_revocation_overdue());
            Counter "vouch_export_tls_handshakes_total" "TLS handshakes completed."
                = tls.handshakes.get();
            Counter "vouch_export_tls_refused_total" "TLS handshakes and sessions refused."
                = tls.handshakes_failed.get();
            Counter "vouch_export_tls_calls_too_weak_total"
                "Calls refused because all exports demand TLS or a certificate."
                = tls.refused_weak.get();
            Counter "vouch_export_tls_reloads_total" "Reloads of certificates." = tls.live.reloads.get();
            Counter "vouch_export_tls_reloads_failed_total"
                "Reloads that failed and kept the old certificates." = tls.live.reloads_failed.get();
        }
    }

    fn write_management(access: &RemoteAccess, page: &mut Exposition) {
        vouch_daemon::metrics! { page;
            Counter "vouch_export_management_calls_total"
                "Calls of administrators over the network." = access.calls.get();
            Counter "vouch_export_management_refused_total"
                "Connections, certificates and calls of administrators that were refused."
                = access.refused.get();
        }
    }

    fn open(&self) -> usize {
        self.driver.open.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Report {
    fn write_totals(&self, totals: &StateTotals, is_grace: bool, page: &mut Exposition) {
        let ((waiting, threads), names) =
            (waiting(&self.driver), self.reloader.accounts.status().0);
        let traffic = &self.driver.traffic;
        let live: u64 =
            self.driver.connections.lock().values().map(|connection| connection.sent_len()).sum();
        vouch_daemon::metrics! { page;
            Gauge "vouch_export_connections" "Open connections." = self.open();
            Gauge "vouch_export_clients" "Clients with state." = totals.clients;
            Gauge "vouch_export_sessions" "Sessions." = totals.sessions;
            Gauge "vouch_export_kept_replies_bytes" "Bytes of session slots and cached replies."
                = totals.reply_cache_len;
            Gauge "vouch_export_opens" "Opens." = totals.opens;
            Gauge "vouch_export_locks" "Byte-range locks." = totals.locks;
            Gauge "vouch_export_delegations" "Delegations." = totals.delegations;
            Gauge "vouch_export_directory_delegations"
                "Delegations of directories, which vouch_export_delegations includes."
                = totals.directory_delegations;
            Gauge "vouch_export_waiting_calls"
                "Calls that wait for a disk, a commit or the name service." = waiting;
            Gauge "vouch_export_waiting_threads" "Threads for calls that wait." = threads;
            Gauge "vouch_export_stalled_file_systems"
                "Remote file systems none of whose calls has ended for 10 s."
                = self.driver.remote.stalled();
            Gauge "vouch_export_waiting_calls_bytes" "Memory of calls that wait."
                = self.driver.quotas.waiting_len.used();
            Gauge "vouch_export_incomplete_calls_bytes" "Memory of incompletely received calls."
                = self.driver.quotas.held.used();
            Gauge "vouch_export_connections_naming"
                "Connections that wait for the lookup of their host name."
                = self.driver.host_lookups.waiting();
            Gauge "vouch_export_name_lookups_waiting"
                "Look-ups of users and groups that wait for a thread." = names.waiting;
            Gauge "vouch_export_name_service_silent"
                "1 while look-ups of users and groups fail, else 0."
                = usize::from(names.silent_ms.is_some());
            Gauge "vouch_export_grace" "1 during the grace period, else 0." = usize::from(is_grace);
            Gauge "vouch_export_grace_awaited_clients"
                "Clients that have not said that they are done with reclaiming." = totals.awaited;
            Counter "vouch_export_connections_accepted_total" "Connections accepted."
                = traffic.accepted.get();
            Counter "vouch_export_connections_refused_total" "Connections refused by a limit."
                = traffic.refused.get();
            Counter "vouch_export_connections_closed_total" "Closed connections."
                = traffic.closed.get();
            Counter "vouch_export_connections_broken_total"
                "Connections closed after a protocol error of the peer."
                = traffic.closed_broken.get();
            Counter "vouch_export_connections_slow_total"
                "Connections closed because the peer timed out." = traffic.closed_slow.get();
            Counter "vouch_export_connections_unnamed_total"
                "Connections closed because the lookup of their host name timed out."
                = traffic.unnamed.get();
            Counter "vouch_export_clients_displaced_total"
                "Clients that were evicted for other clients." = totals.clients_displaced;
            Counter "vouch_export_clients_refused_total"
                "New clients that were refused because the table was full."
                = totals.clients_refused;
            Counter "vouch_export_client_name_conflicts_total"
                "Clients that were refused, or that ended another client, because both use one name."
                = totals.name_conflicts;
            Counter "vouch_export_delegations_revoked_total"
                "Delegations that their holder did not return after a recall."
                = totals.delegations_revoked;
            Counter "vouch_export_held_back_total"
                "Times that reading a connection paused because too many calls waited."
                = self.driver.quotas.calls.refusals.get() + self.driver.quotas.waiting_len.refusals.get();
            Counter "vouch_export_incomplete_held_back_total"
                "Times that reading a call paused because incomplete calls used too much memory."
                = self.driver.quotas.held.refusals.get();
            Counter "vouch_export_calls_total" "Calls received." = traffic.calls.get();
            Counter "vouch_export_calls_blocked_total" "Calls that waited for a disk or a network."
                = traffic.blocked.get();
            Counter "vouch_export_received_bytes_total" "Bytes received."
                = traffic.received_len.get();
            Counter "vouch_export_sent_bytes_total" "Bytes sent." = traffic.sent_len.get() + live;
            Counter "vouch_export_callbacks_total" "Callbacks sent." = traffic.callbacks.get();
            Counter "vouch_export_callbacks_failed_total" "Callbacks without an answer."
                = traffic.callbacks_failed.get();
            Counter "vouch_export_reloads_total" "Reloads of the list of exports."
                = traffic.reloads.get();
            Counter "vouch_export_reloads_failed_total" "Reloads that failed and kept the old list."
                = traffic.reloads_failed.get();
            Counter "vouch_export_name_lookups_total" "Look-ups of users and groups."
                = names.lookups;
            Counter "vouch_export_name_lookups_failed_total"
                "Look-ups that the name service failed to answer." = names.failed;
            Counter "vouch_export_name_lookups_late_total"
                "Calls that waited for a look-up in vain." = names.late;
            Counter "vouch_export_name_refusals_total"
                "Calls that got NFS4ERR_DELAY because their user was unknown." = names.refused;
            Counter "vouch_export_recovery_failures_total" "Failed writes of recovery records."
                = self.driver.recovery.failures();
        }
    }
}

impl StatusSource for Report {
    fn metrics(&self) -> String {
        let mut page = Exposition::of_daemon();
        let (totals, grace_left_ms) = self.driver.engine.totals(clock::now());
        self.write_totals(&totals, grace_left_ms > 0, &mut page);
        self.write_head(&mut page);
        self.driver.qos.write(&mut page);
        self.write_quotas(&mut page);
        if let Some(tls) = &self.driver.tls {
            self.write_tls(tls, &mut page);
        }
        if let Some(access) = &self.reloader.management {
            Self::write_management(access, &mut page);
        }
        if let Some(gss) = &self.driver.gss {
            gss.write(&mut page);
        }
        self.metrics.write(&mut page);
        self.driver.audit.iter().for_each(|audit| audit.write(&mut page));
        page.into_text()
    }

    fn health(&self, _: u64) -> (bool, String) {
        let status = if self.driver.stop.load(Ordering::Relaxed) {
            "stopping"
        } else if self.driver.is_draining.load(Ordering::Relaxed) {
            "draining"
        } else {
            "ok"
        };
        let json = format!("{{\"status\":\"{status}\",\"connections\":{}}}\n", self.open());
        (status == "ok", json)
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus::of_process(DaemonKind::Export, &Report::status(self))
    }

    fn reload(&self) -> Option<Result<Vec<String>, String>> {
        Some(self.reloader.reload())
    }

    fn order(&self, order: &[u8], by: u32) -> Option<Result<Vec<u8>, OrderError>> {
        let order: Order = match serde_json::from_slice(order) {
            Ok(order) => order,
            Err(error) => return Some(Err(OrderError::Refused(format!("not an order: {error}")))),
        };
        let answer = self.manager.carry_out(order, &Administrator::Process(by));
        Some(answer.map(|answer| serde_json::to_vec(&answer).unwrap_or_default()))
    }
}

fn waiting(driver: &Driver) -> (usize, usize) {
    (
        driver.quotas.calls.used(),
        driver.pool.load().1 + driver.names.load().1 + driver.remote.threads(),
    )
}
