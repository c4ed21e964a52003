//! The status report for `vouch export status`.

use std::net::SocketAddr;

use crate::ConnectionId;

#[derive(Clone, Debug, Default)]
pub struct StatusReport {
    pub grace_left_ms: u64,
    pub awaited: Vec<AwaitedReport>,
    pub clients: Vec<ClientReport>,
    pub copies: usize,
    pub recent_errors: Vec<ErrorReport>,
}

/// A client that grace waits for.
#[derive(Clone, Debug)]
pub struct AwaitedReport {
    pub owner: String,
    /// Of the last start. `None` for a Kerberos client.
    pub address: Option<String>,
    /// NFSv4.0, which has no RECLAIM_COMPLETE: grace lasts its full time.
    pub is_v40: bool,
    pub is_back: bool,
}

#[derive(Clone, Debug)]
pub struct ClientReport {
    pub id: u64,
    pub owner: String,
    pub(crate) connection: Option<ConnectionId>,
    pub peer: Option<SocketAddr>,
    pub minor: u32,
    pub implementation: Option<String>,
    pub courtesy: bool,
    pub silent_ms: u64,
    pub sessions: usize,
    pub opens: usize,
    pub locks: usize,
    pub delegations: usize,
    pub callbacks: bool,
}

#[derive(Clone, Debug)]
pub struct ErrorReport {
    pub at_seconds: i64,
    pub peer: SocketAddr,
    pub operation: &'static str,
    pub status: u32,
    pub export: Option<u32>,
    pub message: String,
}
