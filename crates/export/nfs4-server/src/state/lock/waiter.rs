use std::sync::Arc;

use crate::ExportId;
use crate::state::id::{ClientKey, FileKey};
use crate::state::lock::range::{Mode, Range};

pub(in crate::state) struct Waiter {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) file: FileKey,
    pub(in crate::state) owner: Arc<[u8]>,
    pub(in crate::state) range: Range,
    pub(in crate::state) mode: Mode,
    pub(in crate::state) reserved_ms: Option<u64>,
    pub(in crate::state) last_request_ms: u64,
}

impl Waiter {
    pub(in crate::state) fn is(&self, client: ClientKey, owner: &[u8]) -> bool {
        self.client == client && *self.owner == *owner
    }

    pub(in crate::state) fn is_of(&self, client: ClientKey, export: ExportId) -> bool {
        self.client == client && self.file.export == export
    }

    pub(in crate::state) fn collides(&self, range: Range, mode: Mode) -> bool {
        self.range.overlaps(range) && self.mode.conflicts(mode)
    }
}
