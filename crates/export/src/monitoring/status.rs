//! The status of a running server, as the control socket sends it in JSON.

use serde::{Deserialize, Serialize};

/// The server at one moment.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Rest of the grace period; 0 outside of it.
    pub grace_left_ms: u64,
    /// Open connections.
    pub connections: usize,
    /// Calls that wait for a disk or a network, including those on a thread.
    pub waiting_calls: usize,
    /// Threads that run such calls.
    pub waiting_threads: usize,
    /// Number of times that a connection was not read because too many calls waited.
    pub held_back: u64,
    /// Client records that were evicted for other clients.
    pub clients_displaced: u64,
    /// Introductions that were refused because the table was full.
    pub clients_refused: u64,
    /// Copies in the background.
    pub copies: usize,
    /// The exports.
    pub exports: Vec<ExportStatus>,
    /// The clients.
    pub clients: Vec<ClientStatus>,
    /// The last errors that this machine caused.
    pub recent_errors: Vec<ErrorStatus>,
}

/// One export.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Directory or tree.
    pub source: String,
    /// Path that clients mount.
    pub pseudo_path: String,
    /// Number in filehandles.
    pub id: u32,
}

/// One client.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Client id in hexadecimal digits.
    pub id: String,
    /// The client's name for itself.
    pub owner: String,
    /// Address of its last connection.
    pub address: Option<String>,
    /// Minor version of NFSv4.
    pub minor_version: u32,
    /// Implementation, if the client sent it.
    pub implementation: Option<String>,
    /// Whether its lease has expired and its state is kept until somebody needs it.
    pub courtesy: bool,
    /// Time since its last call.
    pub silent_ms: u64,
    /// Sessions.
    pub sessions: usize,
    /// Open files.
    pub opens: usize,
    /// Byte-range locks.
    pub locks: usize,
    /// Delegations.
    pub delegations: usize,
    /// Whether callbacks reach the client.
    pub callbacks: bool,
}

/// One error.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorStatus {
    /// Seconds since 1970.
    pub at_seconds: i64,
    /// Address of the client.
    pub address: String,
    /// Operation of NFSv4.
    pub operation: String,
    /// `nfsstat4` of the reply.
    pub status: u32,
    /// Number of the export.
    pub export: Option<u32>,
    /// The system's reason.
    pub message: String,
}
