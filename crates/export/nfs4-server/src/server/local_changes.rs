//! Directories under delegation that local programs have changed, until the next recall.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_vfs::ChangeListener;

use crate::state::FileKey;

/// At most one entry for each delegated directory.
#[derive(Default)]
pub(crate) struct LocalChanges {
    changed: Mutex<HashSet<FileKey>>,
}

impl LocalChanges {
    pub(crate) fn listener(self: &Arc<Self>, directory: FileKey) -> ChangeListener {
        let changes = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(changes) = changes.upgrade() {
                changes.changed.lock().insert(directory);
            }
        })
    }

    pub(crate) fn take(&self) -> HashSet<FileKey> {
        let mut changed = self.changed.lock();
        if changed.is_empty() { HashSet::new() } else { std::mem::take(&mut *changed) }
    }
}
