use std::sync::Arc;

use vouch_nfs4::{ClientId, OwnerSeq, Stateid, Status};

use crate::state::id::{ClientKey, FileKey};
use crate::state::lock::range::{Mode, Range};

#[derive(Clone, Copy, Debug)]
pub(crate) enum LockBy<'a> {
    New { open: &'a Stateid, owner: &'a [u8], seq: OwnerSeq },
    Old(&'a Stateid),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall<'a> {
    pub client: Option<ClientKey>,
    pub file: FileKey,
    pub by: LockBy<'a>,
    pub range: Range,
    pub mode: Mode,
    pub wait: bool,
    pub reclaim: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub range: Range,
    pub mode: Mode,
    pub client: ClientId,
    pub owner: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LockError {
    Denied(Denied),
    Status(Status),
}

impl From<Status> for LockError {
    fn from(status: Status) -> Self {
        LockError::Status(status)
    }
}
