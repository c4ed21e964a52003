use std::io;
use std::path::PathBuf;

use vouch_daemon::printable::printable;
use vouch_nfs4_server::{ExportsError, Transport};

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Lines(String),
    #[error("{}; {}", printable(.0.to_string().as_bytes()), conflict_remedy(.0))]
    Conflict(#[from] ExportsError),
    #[error("--pseudo {0}: not an absolute path; write / or /export")]
    Pseudo(String),
    #[error("{what}: {source}{}", open_remedy(source))]
    Open { what: String, source: io::Error },
    #[error("{path} demands xprtsec={demand}, which this server does not offer; {remedy}")]
    Transport { path: String, demand: &'static str, remedy: &'static str },
    #[error("nothing to export: {0}")]
    Nothing(String),
}

fn conflict_remedy(error: &ExportsError) -> &'static str {
    match error {
        ExportsError::SameId(..) => "give each a different fsid=",
        ExportsError::SamePath(..) => "remove one of them, or remove fsid=root",
        ExportsError::BadPath(_) => "export it under a path whose names have at most 255 bytes",
    }
}

pub(super) fn transport_remedy(demand: Transport) -> &'static str {
    match demand {
        Transport::MutualTls => "start it with --tls-cert, --tls-key and --tls-client-ca",
        _ => "start it with --tls-cert and --tls-key",
    }
}

fn open_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; create it, or correct the path",
        io::ErrorKind::NotADirectory => "; export its directory",
        io::ErrorKind::PermissionDenied => "; give the user of this server read access",
        _ => "",
    }
}
