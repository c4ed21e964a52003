//! The status of a running server, as the control socket sends it in JSON.

use serde::{Deserialize, Serialize};

/// The server at one moment.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub grace_left_ms: u64,
    pub connections: usize,
    pub waiting_calls: usize,
    pub waiting_threads: usize,
    /// Number of times that a connection was not read because too many calls waited.
    pub held_back: u64,
    pub clients_displaced: u64,
    /// Introductions that were refused because the table was full.
    pub clients_refused: u64,
    pub copies: usize,
    pub exports: Vec<ExportStatus>,
    pub clients: Vec<ClientStatus>,
    pub recent_errors: Vec<ErrorStatus>,
}

/// One export.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExportStatus {
    pub source: String,
    pub pseudo_path: String,
    pub id: u32,
}

/// One client.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    pub id: String,
    pub owner: String,
    pub address: Option<String>,
    pub minor_version: u32,
    pub implementation: Option<String>,
    /// Whether its lease has expired and its state is kept until somebody needs it.
    pub courtesy: bool,
    pub silent_ms: u64,
    pub sessions: usize,
    pub opens: usize,
    /// Byte-range locks.
    pub locks: usize,
    pub delegations: usize,
    pub callbacks: bool,
}

/// One error.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorStatus {
    pub at_seconds: i64,
    pub address: String,
    pub operation: String,
    pub status: u32,
    pub export: Option<u32>,
    pub message: String,
}
