//! Why a server of live exports does not start, or does not go on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::{RecoveryError, SourceError, StateError};
use vouch_daemon::audit_trail::TrailError;
use vouch_daemon::printable::printable;

/// Why a server does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The list of exports.
    #[error(transparent)]
    Sources(#[from] SourceError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The recovery store.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// An address can't be listened on.
    #[error("{address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The audit trail, or its rules.
    #[error(transparent)]
    Audit(#[from] TrailError),
    /// What is to be denied while it can't be recorded is no export.
    #[error(
        "--audit-deny {}: no export has this path; give one as the list has it: {}",
        printable(path.as_bytes()),
        exports.iter().map(|source| printable(source.as_bytes())).collect::<Vec<_>>().join(", ")
    )]
    NotDenied {
        /// What was given.
        path: String,
        /// What is exported.
        exports: Vec<String>,
    },
    /// The keytab that was named.
    #[error("Kerberos: {0}")]
    Kerberos(#[from] vouch_gss_mit::Fault),
    /// idmapd.conf or the static map of principals can't be read.
    #[error("{path}: {source}")]
    Idmap {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The static map of principals has lines that can't be taken.
    #[error("{path}: {faults}")]
    PrincipalMap {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        faults: String,
    },
    /// The system under us.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The policy of the audit trail is to halt.
    #[error("audit records could not be kept, and the policy is to halt")]
    Halted,
    /// A thread ended though it was not told to: a fault of ours.
    #[error("a serving thread ended by itself; this is a fault of this program")]
    ThreadEnded,
}
