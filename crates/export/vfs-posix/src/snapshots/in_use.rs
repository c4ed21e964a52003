//! Snapshots with open files. An open file keeps a removed snapshot's device in use, so the server
//! has to notice the removal.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use vouch_vfs::{Blocking, Result};

use super::SnapshotFs;
use crate::export::{Inner, PosixFs};

pub(super) struct SnapshotInUse {
    number: u64,
    name: Vec<u8>,
    /// Each open file holds it.
    files: Weak<Inner>,
    /// How often it was missed in a row.
    absences: u32,
}

/// One look may fall into a rename or between two mounts.
const ABSENCES_OF_REMOVED: u32 = 2;

impl SnapshotInUse {
    pub(super) fn new(number: u64, name: &[u8], files: &PosixFs) -> Self {
        SnapshotInUse {
            number,
            name: name.to_vec(),
            files: Arc::downgrade(&files.inner),
            absences: 0,
        }
    }

    fn is_removed(&self) -> bool {
        self.absences >= ABSENCES_OF_REMOVED
    }
}

impl SnapshotFs {
    /// Also of a removed snapshot with open files, so that they can be closed. Does not block for
    /// them.
    pub(super) fn files_of(&self, number: u64) -> Result<PosixFs> {
        if let Ok(open) = self.numbered(number, Blocking::Forbidden) {
            return Ok(open.files.clone());
        }
        match self.in_use(number) {
            Some((_, files)) => Ok(files),
            None => Ok(self.numbered(number, Blocking::Allowed)?.files.clone()),
        }
    }

    /// Never blocks. Name and files, if files of it are open.
    pub(super) fn in_use(&self, number: u64) -> Option<(Vec<u8>, PosixFs)> {
        let in_use = self.in_use.lock();
        let mut of_number = in_use.iter().filter(|in_use| in_use.number == number);
        of_number.find_map(|in_use| {
            Some((in_use.name.clone(), PosixFs { inner: in_use.files.upgrade()? }))
        })
    }

    pub(super) fn is_any_removed_in_use(&self) -> bool {
        self.in_use
            .lock()
            .iter()
            .any(|in_use| in_use.is_removed() && in_use.files.strong_count() > 0)
    }

    pub(super) fn is_number_removed(&self, number: u64) -> bool {
        self.in_use.lock().iter().any(|in_use| in_use.is_removed() && in_use.number == number)
    }

    /// Call it after `close_unused`, which closes those that are not there. A removal is noticed by
    /// the second call. An error of a look-up proves nothing.
    pub(super) fn note_removed(&self) {
        let names: HashMap<u64, Vec<u8>> = {
            let mut in_use = self.in_use.lock();
            in_use.retain(|in_use| in_use.files.strong_count() > 0);
            in_use.iter().map(|in_use| (in_use.number, in_use.name.clone())).collect()
        };
        for (number, name) in names {
            let is_there = self.open.read().contains_key(&number) || self.still_has(number, &name);
            let is_absent = !is_there && matches!(self.find(number), Ok(None));
            let mut in_use = self.in_use.lock();
            in_use.iter_mut().filter(|in_use| in_use.number == number).for_each(|in_use| {
                in_use.absences = if is_absent { in_use.absences.saturating_add(1) } else { 0 };
            });
        }
    }
}
