use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::recent_errors::{self, LoggedErrors};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub kind: DaemonKind,
    pub pid: u32,
    pub version: String,
    pub started: u64,
    pub log: LoggedErrors,
    pub detail: serde_json::Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonKind {
    Mount,
    Serve,
    Export,
    Gateway,
    Csi,
    NfsMount,
    Monitor,
    JobsBroker,
    JobsAgent,
}

impl DaemonKind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Serve => "serve",
            Self::Export => "export",
            Self::Gateway => "gateway",
            Self::Csi => "csi",
            Self::NfsMount => "nfs-mount",
            Self::Monitor => "monitor",
            Self::JobsBroker => "jobs-broker",
            Self::JobsAgent => "jobs-agent",
        }
    }
}

impl DaemonStatus {
    pub fn of_process(kind: DaemonKind, detail: &impl Serialize) -> Self {
        Self {
            kind,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: started(),
            log: recent_errors::recent(),
            detail: serde_json::to_value(detail)
                .unwrap_or_else(|error| serde_json::Value::String(error.to_string())),
        }
    }
}

pub fn started() -> u64 {
    *STARTED.get_or_init(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    })
}

static STARTED: OnceLock<u64> = OnceLock::new();
