use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::lease::LeaseError;
use crate::tls::TlsServiceError;
use crate::{RecoveryError, SourceError, StateError};
use vouch_daemon::audit_trail::TrailError;
use vouch_daemon::printable::printable;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Sources(#[from] SourceError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error("{}: {source}", path.display())]
    Recovery { path: PathBuf, source: RecoveryError },
    #[error("{address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Audit(#[from] TrailError),
    #[error(
        "--audit-deny {}: no export has this path; the exports are: {}",
        printable(path.as_bytes()),
        exports.iter().map(|source| printable(source.as_bytes())).collect::<Vec<_>>().join(", ")
    )]
    NotDenied { path: String, exports: Vec<String> },
    #[error(transparent)]
    Tls(#[from] TlsServiceError),
    #[error("Kerberos: {0}")]
    Kerberos(#[from] vouch_gss_mit::KerberosError),
    #[error("{path}: {source}")]
    Idmap { path: PathBuf, source: io::Error },
    #[error("{path}: {faults}")]
    PrincipalMap { path: PathBuf, faults: String },
    #[error("{doing}: {source}")]
    System { doing: &'static str, source: io::Error },
    #[error("audit records could not be written, and the audit policy is to halt")]
    Halted,
    #[error("a thread of the server ended unexpectedly; this is a bug in vouch")]
    ThreadEnded,
}
