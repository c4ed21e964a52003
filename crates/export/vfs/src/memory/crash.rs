//! Power cuts, as a journaling file system survives them.

use super::data::Data;
use super::state::{Node, State};
use super::{Inner, MemoryFs};
use crate::{Blocking, Error, FileId, Result};

impl MemoryFs {
    /// From now on [`MemoryFs::crash`] may be called. Each synchronisation copies all files.
    pub fn keep_disk(&self) {
        *self.inner.disk.lock() = Some(self.inner.state.lock().clone());
    }

    /// Nothing may be open. Names and attributes become those of the last synchronisation, or stay;
    /// the data of each file becomes what was written out, or stays. `random` decides.
    ///
    /// # Panics
    /// Without [`MemoryFs::keep_disk`].
    pub fn crash(&self, mut random: impl FnMut() -> bool) {
        let mut state = self.inner.state.lock();
        let mut disk = self.inner.disk.lock();
        let synced = disk.as_ref().expect("keep_disk was called before");
        let mut after = if random() { state.clone() } else { synced.clone() };
        for inode in after.inodes.values_mut() {
            inode.opens = 0;
            let Node::Regular(data) = &mut inode.node else { continue };
            let from = if random() { &*state } else { synced };
            if let Some(kept) = from.inodes.get(&inode.number) {
                *data = kept.data().cloned().unwrap_or_default();
            }
        }
        let numbers: Vec<u64> = after.inodes.keys().copied().collect();
        for number in numbers {
            after.remove_if_unused(number);
        }
        after.used =
            after.inodes.values().filter_map(|inode| inode.data().ok()).map(Data::used).sum();
        // No value is used twice.
        after.next_number = state.next_number;
        after.last_change = state.last_change + 1;
        after.now = state.now;
        *disk = Some(after.clone());
        *state = after;
    }
}

impl Inner {
    pub(super) fn sync(&self, ids: &[FileId], blocking: Blocking) -> Result<()> {
        let state = self.state.lock();
        if state.slow_sync && blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let files: Vec<u64> = ids.iter().filter_map(|id| self.number_of(id).ok()).collect();
        self.write_out(&state, &files);
        Ok(())
    }

    /// Names and attributes, and the data of these files.
    pub(super) fn write_out(&self, state: &State, files: &[u64]) {
        let mut disk = self.disk.lock();
        let Some(synced) = &mut *disk else { return };
        let before = std::mem::replace(synced, state.clone());
        for inode in synced.inodes.values_mut().filter(|inode| !files.contains(&inode.number)) {
            if let Node::Regular(data) = &mut inode.node {
                let written = before.inodes.get(&inode.number).and_then(|old| old.data().ok());
                *data = written.cloned().unwrap_or_default();
            }
        }
    }
}
