//! State of the broker: status, metrics in Prometheus text format, health as JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vouch_audit::record::Act;
use vouch_daemon::exposition::Exposition;
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;

use super::Broker;
use crate::faults::{OutageStatus, RefusalStatus};
use crate::registry::Counts;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// Where it listens for agents.
    pub addresses: Vec<String>,
    pub principal: String,
    pub keytab: String,
    pub services: Vec<String>,
    /// Jobs that run.
    pub live_jobs: usize,
    /// Jobs that are over, but whose tickets some node may still have.
    pub ended_jobs: usize,
    /// Users of the live jobs.
    pub users: usize,
    /// Pairs of a job and a node that has its tickets.
    pub holders: usize,
    pub connections: usize,
    pub tickets_minted: u64,
    pub tickets_withdrawn: u64,
    pub refused: u64,
    pub kdc_failures: u64,
    /// Set while the KDC gives no tickets.
    pub outage: Option<OutageStatus>,
    /// Without a trail, true.
    pub is_trail_healthy: bool,
    pub refusals: Vec<RefusalStatus>,
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    live_jobs: usize,
    is_trail_healthy: bool,
    outage: Option<OutageStatus>,
}

/// The broker, for its status server.
pub struct BrokerReport {
    pub broker: Arc<Broker>,
    pub addresses: Vec<String>,
}

impl BrokerReport {
    fn detail(&self) -> BrokerStatus {
        let broker = &*self.broker;
        let Counts { live, ended, users, holders } =
            broker.registry.lock().counts(broker.clock.now_s());
        BrokerStatus {
            addresses: self.addresses.clone(),
            principal: broker.config.principal.clone(),
            keytab: broker.config.keytab.display().to_string(),
            services: broker.config.services.clone(),
            live_jobs: live,
            ended_jobs: ended,
            users,
            holders,
            connections: broker.agents.count(),
            tickets_minted: broker.records.count(Act::TicketMinted),
            tickets_withdrawn: broker.records.count(Act::TicketWithdrawn),
            refused: broker.records.count(Act::TicketRefused),
            kdc_failures: broker.kdc_failures.load(std::sync::atomic::Ordering::Relaxed),
            outage: broker.outage.status(),
            is_trail_healthy: broker.records.is_trail_healthy(),
            refusals: broker.records.recent_refusals(),
        }
    }
}

impl StatusSource for BrokerReport {
    fn metrics(&self) -> String {
        let detail = self.detail();
        let mut page = Exposition::of_daemon();
        vouch_daemon::metrics! { page;
            Gauge "vouch_jobs_live" "Jobs that run." = detail.live_jobs;
            Gauge "vouch_jobs_ended"
                "Jobs that are over, but whose tickets some node may still have."
                = detail.ended_jobs;
            Gauge "vouch_jobs_users" "Users of the jobs that run." = detail.users;
            Gauge "vouch_jobs_holders" "Pairs of a job and a node that has its tickets."
                = detail.holders;
            Gauge "vouch_connections" "Connections open now." = detail.connections;
            Gauge "vouch_connections_max" "Connection limit."
                = self.broker.config.limits.connection_count_max;
            Gauge "vouch_jobs_kdc_unavailable" "1 while the KDC gives no tickets."
                = usize::from(detail.outage.is_some());
            Counter "vouch_jobs_tickets_minted_total" "Requests of nodes that got tickets."
                = detail.tickets_minted;
            Counter "vouch_jobs_tickets_withdrawn_total"
                "Tickets that nodes removed, or that ended." = detail.tickets_withdrawn;
            Counter "vouch_jobs_refused_total" "Refused registrations and requests for tickets."
                = detail.refused;
            Counter "vouch_jobs_kdc_failures_total"
                "Requests that failed because the KDC gave no tickets." = detail.kdc_failures;
        }
        self.broker.records.write_metrics(&mut page);
        page.into_text()
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus::of_process(DaemonKind::JobsBroker, &self.detail())
    }

    fn health(&self, _now_s: u64) -> (bool, String) {
        let BrokerStatus { live_jobs, is_trail_healthy, outage, .. } = self.detail();
        let healthy = outage.is_none() && is_trail_healthy;
        let health = Health { healthy, live_jobs, is_trail_healthy, outage };
        (healthy, serde_json::to_string(&health).expect("numbers and texts serialize") + "\n")
    }
}
