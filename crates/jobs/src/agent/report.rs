//! State of the agent: status, metrics in Prometheus text format, health as JSON.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::StatusSource;

use super::Agent;
use crate::faults::{OutageStatus, RefusalStatus};

#[derive(Default)]
pub(super) struct Counters {
    written: AtomicU64,
    refused: AtomicU64,
    renewals_failed: AtomicU64,
    lapsed: AtomicU64,
}

macro_rules! counting {
    ($($add:ident $counter:ident)*) => {$(
        pub(super) fn $add(&self) {
            self.$counter.fetch_add(1, Ordering::Relaxed);
        }
    )*};
}

impl Counters {
    counting! { written written refused refused renewal_failed renewals_failed lapsed lapsed }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentStatus {
    pub node: String,
    pub principal: String,
    pub keytab: String,
    pub broker: String,
    /// Jobs that run on this node.
    pub jobs: usize,
    /// Users of these jobs.
    pub users: usize,
    /// Users whose tickets ended before they could be renewed.
    pub users_without_tickets: Vec<u32>,
    /// End of the tickets that end first, seconds since 1970.
    pub next_end_s: Option<u64>,
    /// Caches written, first ones and renewed ones.
    pub caches_written: u64,
    pub refused: u64,
    pub renewals_failed: u64,
    /// Caches removed because their tickets ended.
    pub lapsed: u64,
    /// Set while the broker does not answer, or has no tickets because its KDC does not.
    pub outage: Option<OutageStatus>,
    pub refusals: Vec<RefusalStatus>,
}

#[derive(Serialize)]
struct Health {
    healthy: bool,
    jobs: usize,
    users_without_tickets: usize,
    outage: Option<OutageStatus>,
}

/// The agent, for its status server.
pub struct AgentReport(pub Arc<Agent>);

impl AgentReport {
    fn detail(&self) -> AgentStatus {
        let agent = &*self.0;
        let (jobs, users, users_without_tickets, next_end_s) = {
            let accounts = agent.accounts.lock();
            let users: BTreeSet<u32> = accounts.jobs.values().map(|job| job.uid).collect();
            let without: BTreeSet<u32> = accounts
                .jobs
                .iter()
                .filter(|(id, job)| {
                    accounts.caches.get(&job.owner(id)).is_some_and(|cache| cache.file.is_none())
                })
                .map(|(_, job)| job.uid)
                .collect();
            let next = accounts
                .caches
                .values()
                .filter(|cache| cache.file.is_some())
                .map(|cache| cache.end_s)
                .min();
            (accounts.jobs.len(), users.len(), without.into_iter().collect(), next)
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AgentStatus {
            node: agent.config.node.to_string(),
            principal: agent.config.principal.clone(),
            keytab: agent.config.keytab.display().to_string(),
            broker: format!("{}:{}", agent.config.broker.0, agent.config.broker.1),
            jobs,
            users,
            users_without_tickets,
            next_end_s,
            caches_written: count(&agent.counters.written),
            refused: count(&agent.counters.refused),
            renewals_failed: count(&agent.counters.renewals_failed),
            lapsed: count(&agent.counters.lapsed),
            outage: agent.outage.status(),
            refusals: agent.refusals.status(),
        }
    }
}

impl StatusSource for AgentReport {
    fn metrics(&self) -> String {
        let detail = self.detail();
        let mut page = Exposition::of_daemon();
        vouch_daemon::metrics! { page;
            Gauge "vouch_jobs_agent_jobs" "Jobs on this node." = detail.jobs;
            Gauge "vouch_jobs_agent_users" "Users of these jobs." = detail.users;
            Gauge "vouch_jobs_agent_users_without_tickets" "Users whose tickets could not be renewed."
                = detail.users_without_tickets.len();
            Gauge "vouch_jobs_agent_broker_unavailable" "1 while the broker gives no tickets."
                = u8::from(detail.outage.is_some());
            Counter "vouch_jobs_agent_caches_written_total"
                "Caches written, first ones and renewed ones." = detail.caches_written;
            Counter "vouch_jobs_agent_refused_total" "Refused requests for tickets."
                = detail.refused;
            Counter "vouch_jobs_agent_renewals_failed_total"
                "Renewals that failed and were tried again." = detail.renewals_failed;
            Counter "vouch_jobs_agent_lapsed_total" "Caches removed because their tickets ended."
                = detail.lapsed;
        }
        if let Some(end_s) = detail.next_end_s {
            let help = "End of the tickets that end first, in seconds since 1970.";
            page.single("vouch_jobs_agent_next_end_timestamp_seconds", Metric::Gauge, help, end_s);
        }
        page.into_text()
    }

    fn status(&self) -> DaemonStatus {
        DaemonStatus::of_process(DaemonKind::JobsAgent, &self.detail())
    }

    fn health(&self, _now_s: u64) -> (bool, String) {
        let AgentStatus { jobs, users_without_tickets, outage, .. } = self.detail();
        let healthy = outage.is_none() && users_without_tickets.is_empty();
        let health =
            Health { healthy, jobs, users_without_tickets: users_without_tickets.len(), outage };
        (healthy, serde_json::to_string(&health).expect("numbers and texts serialize") + "\n")
    }
}
