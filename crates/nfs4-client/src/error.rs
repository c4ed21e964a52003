//! Errors of the client.

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_oncrpc::{AuthStat, RecordError};

use crate::ProtectionError;

/// Failure of a call or a helper.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused an operation.
    #[error("{}: {status}", op.name().unwrap_or("operation"))]
    Refused {
        /// The operation.
        op: Op,
        /// The status.
        status: Status,
    },
    /// The server did not accept the RPC call.
    #[error("the server did not accept the call: {0}")]
    NotAccepted(&'static str),
    /// The server rejected the caller's credential.
    #[error("the server rejected the caller's credential (auth_stat {})", .0.0)]
    Denied(AuthStat),
    /// The reply cannot be decoded.
    #[error("cannot decode the server's reply: {0}")]
    Unreadable(#[from] vouch_xdr::Error),
    /// The stream is not a valid sequence of records.
    #[error("cannot read the server's record stream: {0}")]
    Stream(#[from] RecordError),
    /// The reply does not match the call.
    #[error("the server's reply does not match the call: {0}")]
    Mismatch(&'static str),
    /// The protection of the reply is not valid.
    #[error("{0}")]
    Protection(#[from] ProtectionError),
    /// The connection is lost and reconnecting failed, or the session is lost.
    #[error("the connection to the server is lost")]
    Lost,
    /// The compound exceeds the limits of the session.
    #[error("the compound is larger than the session allows")]
    TooLarge,
    /// A network error.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Returns the status, if the server refused an operation.
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}
