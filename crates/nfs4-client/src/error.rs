//! What can go wrong, and whose fault it was.

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_oncrpc::{AuthStat, RecordError};

use crate::ProtectionError;

/// Why a call or a helper failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused an operation.
    #[error("{}: {status}", op.name().unwrap_or("operation"))]
    Refused {
        /// Which.
        op: Op,
        /// How.
        status: Status,
    },
    /// The server did not even look at the call.
    #[error("the server did not accept the call: {0}")]
    NotAccepted(&'static str),
    /// The server does not believe who calls.
    #[error("the server does not believe the caller (auth_stat {})", .0.0)]
    Denied(AuthStat),
    /// The server's bytes can't be read.
    #[error("the server's reply can't be read: {0}")]
    Unreadable(#[from] vouch_xdr::Error),
    /// The server's stream can't be cut into records.
    #[error("the server's stream can't be read: {0}")]
    Stream(#[from] RecordError),
    /// The server's reply is not to what was asked.
    #[error("the server's reply does not fit the call: {0}")]
    Mismatch(&'static str),
    /// The reply's protection does not hold.
    #[error("{0}")]
    Protection(#[from] ProtectionError),
    /// The connection is gone and does not come back.
    #[error("the connection to the server is lost")]
    Lost,
    /// The caller's own compound is larger than the session allows.
    #[error("the compound is larger than the session allows")]
    TooLarge,
    /// The network.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// The status, if the server refused an operation.
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}
