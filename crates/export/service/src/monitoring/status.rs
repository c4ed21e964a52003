//! Status for `vouch export status` and `vouch status`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub site: SiteStatus,
    /// None without a shared state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadStatus>,
    pub grace_left_ms: u64,
    /// New clients have to wait.
    #[serde(default)]
    pub draining: bool,
    /// Clients that grace waits for.
    #[serde(default)]
    pub awaited: Vec<AwaitedStatus>,
    pub connections: usize,
    pub waiting_calls: usize,
    pub waiting_threads: usize,
    pub held_back: u64,
    pub clients_displaced: u64,
    /// EXCHANGE_IDs and SETCLIENTIDs that a full table refused.
    pub clients_refused: u64,
    /// Clients refused or ended because another client uses their name.
    #[serde(default)]
    pub name_conflicts: u64,
    #[serde(default)]
    pub delegations_revoked: u64,
    pub copies: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
    #[serde(default)]
    pub name_service: NameServiceStatus,
    #[serde(default)]
    pub refusals: Vec<RefusalStatus>,
    /// Limits of `qos=`, those that hold a client back first.
    #[serde(default)]
    pub qos: Vec<QosStatus>,
    pub exports: Vec<ExportStatus>,
    pub clients: Vec<ClientStatus>,
    pub recent_errors: Vec<ErrorStatus>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadRole {
    Active,
    #[default]
    Standby,
}

/// A head of a shared state directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeadStatus {
    pub head: String,
    pub role: HeadRole,
    pub epoch: u64,
    /// Of a standby: the head that has the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Of the active head.
    pub lease_left_ms: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExportStatus {
    pub source: String,
    pub pseudo_path: String,
    pub id: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaStatus>,
}

/// `quota=`, bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QuotaStatus {
    pub used: u64,
    pub limit: u64,
    /// `project` (of the file system) or `server`.
    pub enforced_by: String,
}

/// Use of its limits on an export by a client, or by all together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QosStatus {
    pub export: String,
    /// An address, a principal, or `all`.
    pub client: String,
    pub ops_per_second: Option<u64>,
    pub bytes_per_second: Option<u64>,
    pub weight: u32,
    pub operations: u64,
    pub bytes: u64,
    /// Times that a connection was held back, and for how long in all.
    pub held: u64,
    pub held_ms: u64,
    /// The limit that holds it back now: ops or bytes.
    pub held_by: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedStatus {
    pub owner: String,
    /// None for a Kerberos client.
    pub address: Option<String>,
    /// NFSv4.0 has no RECLAIM_COMPLETE: grace lasts its full time for such a client.
    pub is_v40: bool,
    /// The client is back, and has not said that it is done.
    pub is_back: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    pub id: String,
    pub owner: String,
    pub address: Option<String>,
    pub minor_version: u32,
    pub implementation: Option<String>,
    /// The lease has expired; the state stays until another client needs it.
    pub courtesy: bool,
    pub silent_ms: u64,
    pub sessions: usize,
    pub opens: usize,
    pub locks: usize,
    pub delegations: usize,
    pub callbacks: bool,
    /// none, tls or mtls, as in exports(5); `None` if the client has no connection now.
    #[serde(default)]
    pub xprtsec: Option<String>,
    #[serde(default)]
    pub certificate: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TlsStatus {
    pub certificate: String,
    pub fingerprint: String,
    pub not_after: i64,
    pub days_left: i64,
    /// A list of revoked certificates is older than its next update.
    #[serde(default)]
    pub revocation_overdue: bool,
    pub tls: usize,
    pub mtls: usize,
    pub handshakes: u64,
    pub refused: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ErrorStatus {
    pub at_seconds: i64,
    pub address: String,
    pub operation: String,
    pub status: u32,
    pub export: Option<u32>,
    pub message: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SiteStatus {
    pub addresses: Vec<String>,
    pub state: String,
    pub keytab: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NameServiceStatus {
    pub lookups: u64,
    pub failed: u64,
    pub late: u64,
    pub refused: u64,
    pub waiting: usize,
    /// Time since the first look-up that failed; `None` if the name service answers.
    pub silent_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// Name in docs/troubleshooting.md.
    pub fault: String,
    pub caller: String,
    pub address: String,
    pub reason: String,
    pub at_seconds: i64,
}
