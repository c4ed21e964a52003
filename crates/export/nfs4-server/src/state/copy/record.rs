use vouch_nfs4::Status;
use vouch_nfs4::cb::OffloadInfo;

use crate::state::id::FileKey;

#[derive(Debug)]
pub(in crate::state) struct Copy {
    pub(in crate::state) file: FileKey,
    pub(in crate::state) copied: u64,
    pub(in crate::state) end: Option<OffloadInfo>,
}

impl Copy {
    pub(in crate::state) fn file(&self) -> &FileKey {
        &self.file
    }

    pub(in crate::state) fn is_done(&self) -> bool {
        self.end.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyProgress {
    pub copied: u64,
    pub end: Option<Status>,
}
