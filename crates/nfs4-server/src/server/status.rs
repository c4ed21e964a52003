//! What the server tells about itself: `vouch export status`. Plain values; how they are printed is
//! the driver's.

use std::net::SocketAddr;

use crate::ConnectionId;
use crate::state::StateStatus;

/// The server at one moment.
#[derive(Clone, Debug, Default)]
pub struct StatusReport {
    /// Milliseconds until the grace period ends; 0 if it has.
    pub grace_left_ms: u64,
    /// Clients.
    pub clients: Vec<ClientReport>,
    /// Asynchronous copies under way.
    pub copies: usize,
    /// The last errors that were the environment's fault or ours, oldest first; bounded.
    pub recent_errors: Vec<ErrorReport>,
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientReport {
    /// Its client id.
    pub id: u64,
    /// Its own name for itself, as printable text.
    pub owner: String,
    /// The last address that it is known to have called from, as long as it is connected.
    pub peer: Option<SocketAddr>,
    /// Minor version.
    pub minor: u32,
    /// Implementation that it named.
    pub implementation: Option<String>,
    /// Whether its lease has run out, and its state lives by courtesy.
    pub courtesy: bool,
    /// Milliseconds since it was last heard of.
    pub silent_ms: u64,
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: usize,
    /// Byte-range locks.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Whether callbacks reach it.
    pub callbacks: bool,
}

/// One error.
#[derive(Clone, Debug)]
pub struct ErrorReport {
    /// When, seconds since 1970.
    pub at_seconds: i64,
    /// From which client.
    pub peer: SocketAddr,
    /// Operation.
    pub operation: &'static str,
    /// Status that was answered.
    pub status: u32,
    /// Export.
    pub export: Option<u32>,
    /// What happened.
    pub message: String,
}

/// The report of what state has to tell.
pub(crate) fn of_state(status: &StateStatus, peer: impl Fn(ConnectionId) -> Option<SocketAddr>) -> StatusReport {
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
    StatusReport { grace_left_ms: 0, clients: clients.collect(), copies: status.totals.copies, recent_errors: Vec::new() }
}
