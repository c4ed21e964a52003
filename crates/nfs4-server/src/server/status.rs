//! The status report for `vouch export status`, as plain values.

use std::net::SocketAddr;

use crate::ConnectionId;
use crate::state::StateStatus;

/// The server at one moment.
#[derive(Clone, Debug, Default)]
pub struct StatusReport {
    /// Rest of grace, milliseconds.
    pub grace_left_ms: u64,
    /// Clients.
    pub clients: Vec<ClientReport>,
    /// Asynchronous copies under way.
    pub copies: usize,
    /// The last errors of the environment or the server, oldest first.
    pub recent_errors: Vec<ErrorReport>,
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientReport {
    /// Its client id.
    pub id: u64,
    /// The client's name for itself, printable.
    pub owner: String,
    /// Address of its connection, if it is connected.
    pub peer: Option<SocketAddr>,
    /// Minor version.
    pub minor: u32,
    /// Implementation name that the client sent.
    pub implementation: Option<String>,
    /// Whether its lease has expired and its state is kept until it conflicts.
    pub courtesy: bool,
    /// Time since the last call, milliseconds.
    pub silent_ms: u64,
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: usize,
    /// Byte-range locks.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Whether callbacks reach the client.
    pub callbacks: bool,
}

/// One error.
#[derive(Clone, Debug)]
pub struct ErrorReport {
    /// Seconds since 1970.
    pub at_seconds: i64,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Operation.
    pub operation: &'static str,
    /// Status of the reply.
    pub status: u32,
    /// Export.
    pub export: Option<u32>,
    /// The reason.
    pub message: String,
}

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
