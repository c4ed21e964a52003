//! Requests and results of LOCK.

use std::sync::Arc;

use vouch_nfs4::{ClientId, OwnerSeq, Stateid, Status};

use crate::state::id::{ClientKey, FileKey};
use crate::state::lock::range::{Mode, Range};

/// Lock owner of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockBy<'a> {
    /// An owner without locks in the file.
    New {
        /// Open that the owner starts with.
        open: &'a Stateid,
        /// Owner name.
        owner: &'a [u8],
        /// Sequence number (4.0).
        seq: OwnerSeq,
    },
    /// An owner with a lock state in the file.
    Old(&'a Stateid),
}

/// A LOCK request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall<'a> {
    /// Client of the session in 4.1; none in 4.0.
    pub client: Option<ClientKey>,
    /// File.
    pub file: FileKey,
    /// Lock owner.
    pub by: LockBy<'a>,
    /// Range.
    pub range: Range,
    /// Mode.
    pub mode: Mode,
    /// Whether to queue a refused request (READW, WRITEW).
    pub wait: bool,
    /// Whether the client reclaims a lock from before the restart.
    pub reclaim: bool,
}

/// The conflicting lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    /// Range.
    pub range: Range,
    /// Mode.
    pub mode: Mode,
    /// Client of its owner.
    pub client: ClientId,
    /// Lock owner.
    pub owner: Arc<[u8]>,
}

/// Reason for a refused lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    /// DENIED.
    Denied(Denied),
    /// Another status.
    Status(Status),
}

impl From<Status> for LockError {
    fn from(status: Status) -> Self {
        LockError::Status(status)
    }
}
