//! What LOCK asks of state, and what it gets.

use std::sync::Arc;

use vouch_nfs4::{ClientId, OwnerSeq, Stateid, Status};

use crate::state::id::{ClientKey, FileKey};
use crate::state::lock::range::{Mode, Range};

/// Who locks.
#[derive(Clone, Copy, Debug)]
pub enum LockBy<'a> {
    /// An owner that has no locks of the file yet.
    New {
        /// The open that it begins with.
        open: &'a Stateid,
        /// Its name.
        owner: &'a [u8],
        /// Its number (4.0).
        seq: OwnerSeq,
    },
    /// One that has: its locks of the file.
    Old(&'a Stateid),
}

/// A LOCK.
#[derive(Clone, Copy, Debug)]
pub struct LockCall<'a> {
    /// The session's client in 4.1, none in 4.0.
    pub client: Option<ClientKey>,
    /// The file.
    pub file: FileKey,
    /// Who.
    pub by: LockBy<'a>,
    /// Which bytes.
    pub range: Range,
    /// Shared or exclusive.
    pub mode: Mode,
    /// Whether the client will wait (READW, WRITEW): it is put in the queue.
    pub wait: bool,
    /// Whether it was held before the server restarted.
    pub reclaim: bool,
}

/// The lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Which bytes.
    pub range: Range,
    /// Shared or exclusive.
    pub mode: Mode,
    /// Whose: the client.
    pub client: ClientId,
    /// And its lock owner.
    pub owner: Arc<[u8]>,
}

/// Why there is no lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
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
