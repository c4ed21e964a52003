//! Errors of the NFS service.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::{RecoveryError, SourceError, StateError};
use vouch_daemon::audit_trail::TrailError;
use vouch_daemon::printable::printable;

/// An error that keeps the service from starting, or stops it.
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
    /// The server cannot listen on an address.
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
    /// `--audit-deny` names a path that is not exported.
    #[error(
        "--audit-deny {}: no export has this path; the exports are: {}",
        printable(path.as_bytes()),
        exports.iter().map(|source| printable(source.as_bytes())).collect::<Vec<_>>().join(", ")
    )]
    NotDenied {
        /// The path.
        path: String,
        /// The exports.
        exports: Vec<String>,
    },
    /// The keytab cannot be used.
    #[error("Kerberos: {0}")]
    Kerberos(#[from] vouch_gss_mit::Fault),
    /// idmapd.conf or the principal map cannot be read.
    #[error("{path}: {source}")]
    Idmap {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The principal map has errors.
    #[error("{path}: {faults}")]
    PrincipalMap {
        /// The file.
        path: PathBuf,
        /// The errors.
        faults: String,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    System {
        /// What the call was for.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The audit policy has halted the server.
    #[error("audit records could not be written, and the audit policy is to halt")]
    Halted,
    /// A thread ended by itself.
    #[error("a thread of the server ended unexpectedly; this is a bug in vouch")]
    ThreadEnded,
}
