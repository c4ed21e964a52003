//! An asynchronous copy.

use vouch_nfs4::Status;
use vouch_nfs4::cb::OffloadInfo;

use crate::state::id::FileKey;

/// A copy.
#[derive(Debug)]
pub(in crate::state) struct Copy {
    /// The destination, as the client knows it.
    pub(in crate::state) file: FileKey,
    pub(in crate::state) copied: u64,
    pub(in crate::state) end: Option<OffloadInfo>,
}

impl Copy {
    /// The destination, as the client knows it.
    pub(in crate::state) fn file(&self) -> &FileKey {
        &self.file
    }

    pub(in crate::state) fn is_done(&self) -> bool {
        self.end.is_some()
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes so far.
    pub copied: u64,
    /// How it ended, if it has.
    pub end: Option<Status>,
}
