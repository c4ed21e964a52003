use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_oncrpc::{AuthStat, RecordError};

use crate::ProtectionError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {status}", op.name().unwrap_or("operation"))]
    Refused { op: Op, status: Status },
    #[error("the server did not accept the call: {0}")]
    NotAccepted(&'static str),
    #[error("the server rejected the caller's credential (auth_stat {})", .0.0)]
    Denied(AuthStat),
    #[error("cannot decode the server's reply: {0}")]
    Unreadable(#[from] vouch_xdr::Error),
    #[error("cannot read the server's record stream: {0}")]
    Stream(#[from] RecordError),
    #[error("the server's reply does not match the call: {0}")]
    Mismatch(&'static str),
    #[error("{0}")]
    Protection(#[from] ProtectionError),
    #[error("the connection to the server is lost")]
    Lost,
    #[error("the compound is larger than the session allows")]
    TooLarge,
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// The status with which the server refused an operation.
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}
