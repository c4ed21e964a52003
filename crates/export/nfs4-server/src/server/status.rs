//! The status report for `vouch export status`.

use std::net::SocketAddr;

use crate::ConnectionId;
use crate::state::{Family, StateStatus};

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

pub(crate) fn of_state(
    status: &StateStatus,
    peer: impl Fn(ConnectionId) -> Option<SocketAddr>,
) -> StatusReport {
    let clients = status.clients.iter().map(|client| ClientReport {
        id: client.id.0,
        owner: client.owner.escape_ascii().to_string(),
        peer: client.connection.and_then(&peer),
        minor: client.minor,
        implementation: client.implementation.clone(),
        courtesy: client.courtesy,
        silent_ms: client.silent_ms,
        sessions: client.sessions,
        opens: client.opens,
        locks: client.locks,
        delegations: client.delegations,
        callbacks: client.callbacks,
    });
    let awaited = status.awaited.iter().map(|awaited| AwaitedReport {
        owner: awaited.owner.escape_ascii().to_string(),
        address: awaited.from.map(|from| from.to_string()),
        is_v40: awaited.family == Family::V40,
        is_back: awaited.is_back,
    });
    StatusReport {
        grace_left_ms: 0,
        awaited: awaited.collect(),
        clients: clients.collect(),
        copies: status.totals.copies,
        recent_errors: Vec::new(),
    }
}
