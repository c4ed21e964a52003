//! Bounds on what peers, schedulers and time can make the broker and the agents hold.

use std::time::Duration;

/// Limits of the broker that a site may change.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Jobs registered at once, live or not yet forgotten.
    pub job_count_max: usize,
    /// Live jobs of one user.
    pub user_job_count_max: usize,
    /// Longest time from a job's registration to its deadline.
    pub job_s_max: u64,
    /// Longest life of a ticket, which bounds how long a stolen ticket is of use.
    pub ticket_s_max: u64,
    /// Lowest user id that gets tickets: root and system accounts get none.
    pub uid_min: u32,
    /// Connections of agents at once.
    pub connection_count_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            job_count_max: 100_000,
            user_job_count_max: 10_000,
            // Slurm's limit of 30 days and its grace.
            job_s_max: 31 * 86_400,
            ticket_s_max: 3600,
            uid_min: 1000,
            connection_count_max: 512,
        }
    }
}

/// Nodes of one job.
pub(crate) const NODE_COUNT_MAX: usize = 10_000;
/// A registration with all its nodes; a reply that lists jobs.
pub(crate) const CONTROL_LEN_MAX: usize = 4 << 20;
/// A request of an agent.
pub(crate) const REQUEST_LEN_MAX: usize = 64 << 10;
/// Tickets for one job: each may carry authorization data of 64 KiB.
pub const REPLY_LEN_MAX: usize = 2 << 20;
/// A token of GSS-API: a ticket with authorization data.
pub(crate) const TOKEN_LEN_MAX: usize = 128 << 10;
/// Services that a broker mints tickets for.
pub const SERVICE_COUNT_MAX: usize = 16;
/// Jobs that one agent holds: more than any node runs at once.
pub(crate) const AGENT_JOB_COUNT_MAX: usize = 1000;
/// Time for a connection to prove who it is and to send its request.
pub(crate) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for an answer, which may have to wait for the KDC.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests to the KDC at once.
pub(crate) const KDC_REQUEST_COUNT_MAX: usize = 8;
/// Volumes of one pod.
pub(crate) const POD_JOB_COUNT_MAX: usize = 64;
/// A cluster's keys, and the users of its pods.
pub(crate) const POD_FILE_LEN_MAX: u64 = 1 << 20;
/// Files of the spool in one pass.
pub(crate) const SPOOLED_COUNT_MAX: usize = 10_000;
/// Share of the connections that one address may have: beyond it the broker closes the oldest that has
/// proved nothing, or the new one, whose agent tries again.
pub(crate) const ADDRESS_SHARE: usize = 4;
/// Connections of the scheduler, or of a node's prologs and epilogs, at once.
pub(crate) const LOCAL_CONNECTION_COUNT_MAX: usize = 256;
/// Connections of local users who may not ask the broker, at once. Others are closed.
pub(crate) const OTHER_CONNECTION_COUNT_MAX: usize = 16;
