use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_oncrpc::{AuthStat, RecordError};

use crate::ProtectionError;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused an operation of the COMPOUND.
    #[error("{}: {status}", op.name().unwrap_or("operation"))]
    Refused {
        /// The operation.
        op: Op,
        /// Its status.
        status: Status,
    },
    /// The RPC layer of the server did not execute the call.
    #[error("the server did not accept the call: {0}")]
    NotAccepted(&'static str),
    /// The RPC layer of the server refused the credential.
    #[error("the server rejected the caller's credential (auth_stat {})", .0.0)]
    Denied(AuthStat),
    /// The reply has an invalid encoding.
    #[error("cannot decode the server's reply: {0}")]
    Unreadable(#[from] vouch_xdr::Error),
    /// The stream has an invalid record mark.
    #[error("cannot read the server's record stream: {0}")]
    Stream(#[from] RecordError),
    /// The reply breaks the protocol.
    #[error("the server's reply does not match the call: {0}")]
    Mismatch(&'static str),
    /// The reply is not genuine, or the context is lost.
    #[error("{0}")]
    Protection(#[from] ProtectionError),
    /// The server ended the connection, or reconnection failed.
    #[error(
        "the server ended the connection, or it is lost; the server's log has the cause of a refusal"
    )]
    Lost,
    /// Send fewer operations or less data in a call.
    #[error("the compound is larger than the session allows")]
    TooLarge,
    /// The handshake failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// Error of the system.
    #[error("{0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Lost,
            _ => Self::Io(error),
        }
    }
}

impl Error {
    /// The status with which the server refused an operation.
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    pub(crate) const fn is_delayed_sequence(&self) -> bool {
        matches!(self, Self::Refused { op: Op::SEQUENCE, status: Status::DELAY })
    }
}
