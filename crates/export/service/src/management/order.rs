//! Orders and answers, as JSON on the control socket.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vouch_daemon::status_client::{self, OrderError};

use crate::exports::changes::Origin;

/// Paths are words of exports(5): other bytes than graphic ASCII are octal, as in `\040`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order", deny_unknown_fields)]
pub enum Order {
    ListExports,
    /// `clients`: each as in exports(5), such as `192.0.2.0/24(rw,sec=krb5p)`. `keep`: over restarts.
    AddExport {
        path: String,
        clients: Vec<String>,
        #[serde(default)]
        keep: bool,
    },
    /// Replaces the clients of an export and their options.
    SetExport {
        path: String,
        clients: Vec<String>,
        #[serde(default)]
        keep: bool,
    },
    RemoveExport {
        path: String,
        #[serde(default)]
        keep: bool,
    },
    /// Reads the lists again.
    Reload,
    /// The same, and ends all changes that are not kept.
    DiscardChanges,
    /// `client`: id or address.
    ListState {
        #[serde(default)]
        client: Option<String>,
    },
    EvictClient {
        client: String,
    },
    /// Ends opens, locks and delegations on a file, or on all files of an export.
    Unlock {
        path: String,
    },
    /// New clients wait while the server drains.
    Drain {
        on: bool,
    },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exports: Option<Vec<ExportRule>>,
    /// Listed exports that a change hides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<StateStatus>>,
    /// Clients or states that the order ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A client of an export, with the options in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportRule {
    pub path: String,
    pub client: String,
    pub options: String,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateKind {
    Open,
    Lock,
    Delegation,
    #[serde(rename = "directory-delegation")]
    DirectoryDelegation,
    Copy,
}

/// A state that a client holds on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStatus {
    /// Id, as in the list of clients.
    pub client: String,
    pub kind: StateKind,
    /// `r`, `w` or `rw`.
    pub access: String,
    /// Denied to other opens: empty, `r`, `w` or `rw`.
    pub deny: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockStatus>,
    /// The holder of the delegation was asked to return it.
    #[serde(default)]
    pub recalled: bool,
    /// Path or name of the export.
    pub export: String,
    /// Below the export. `None` if the file system does not know it.
    pub path: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    pub offset: u64,
    /// In bytes; `None` reaches the end of the file.
    pub length: Option<u64>,
    pub exclusive: bool,
}

/// Sends an order to the server with this control socket. Blocks.
pub fn send(socket: &Path, order: &Order) -> Result<Answer, OrderError> {
    let body = serde_json::to_vec(order).map_err(io::Error::from)?;
    let answer = status_client::order(socket, body)?;
    Ok(serde_json::from_slice(&answer).map_err(io::Error::from)?)
}
