use std::collections::VecDeque;

use super::hash::Map;
use super::id::{ClientKey, FileKey, FileRef, StateKey};
use super::limits::{CHANGE_MEMORY_MS, CONFLICT_MEMORY_MS, RECENT_FILES_MAX, REUSE_MEMORY_MS};
use super::slab::Slab;
use crate::state::lock::file_locks::FileLocks;
use crate::state::lock::waiter::Waiter;
use crate::state::open::file_opens::FileOpens;

pub(super) struct FileState {
    pub(super) key: FileKey,
    pub(super) opens: FileOpens,
    pub(super) locks: FileLocks,
    /// Includes recalled ones. A write delegation is alone.
    pub(super) delegations: Vec<StateKey>,
    pub(super) waiters: Vec<Waiter>,
    pub(super) copies: usize,
}

impl FileState {
    pub(super) fn is_idle(&self) -> bool {
        self.opens.is_empty()
            && self.locks.is_empty()
            && self.delegations.is_empty()
            && self.waiters.is_empty()
            && self.copies == 0
    }
}

pub(super) struct Files {
    pub(super) table: Slab<FileRef, FileState>,
    pub(super) names: Map<FileKey, FileRef>,
    recent: Recent,
    changes: Recent,
}

impl std::ops::Index<FileRef> for Files {
    type Output = FileState;

    #[inline]
    fn index(&self, key: FileRef) -> &FileState {
        &self.table[key]
    }
}

impl std::ops::IndexMut<FileRef> for Files {
    #[inline]
    fn index_mut(&mut self, key: FileRef) -> &mut FileState {
        &mut self.table[key]
    }
}

impl Files {
    pub(super) fn new(hasher: super::hash::Seed) -> Self {
        Files {
            table: Slab::new(),
            names: Map::with_hasher(hasher),
            recent: Recent { files: Map::with_hasher(hasher), order: VecDeque::new() },
            changes: Recent { files: Map::with_hasher(hasher), order: VecDeque::new() },
        }
    }

    pub(super) fn find(&self, key: &FileKey) -> Option<FileRef> {
        self.names.get(key).copied()
    }

    /// A caller that adds no state must call `State::remove_file_if_idle`.
    pub(super) fn enter(&mut self, key: &FileKey) -> FileRef {
        if let Some(&file) = self.names.get(key) {
            return file;
        }
        let file = self.table.insert(FileState {
            key: *key,
            opens: FileOpens::default(),
            locks: FileLocks::default(),
            delegations: Vec::new(),
            waiters: Vec::new(),
            copies: 0,
        });
        self.names.insert(*key, file);
        file
    }

    pub(super) fn note_conflict(&mut self, key: &FileKey, now: u64) {
        self.recent.note(key, |recent| recent.conflict_ms = Some(now));
    }

    pub(super) fn contended(&self, key: &FileKey, now: u64) -> bool {
        self.recent
            .files
            .get(key)
            .and_then(|recent| recent.conflict_ms)
            .is_some_and(|at| now < at + CONFLICT_MEMORY_MS)
    }

    pub(super) fn note_change(&mut self, key: &FileKey, by: Option<ClientKey>, now: u64) {
        self.changes.note(key, |recent| {
            let others = recent
                .changed
                .is_some_and(|(other, at)| other != by && now < at + CHANGE_MEMORY_MS);
            recent.changed = Some((by.filter(|_| !others), now));
        });
    }

    pub(super) fn changed_by_others(&self, key: &FileKey, client: ClientKey, now: u64) -> bool {
        let changed = self.changes.files.get(key).and_then(|recent| recent.changed);
        changed.is_some_and(|(by, at)| by != Some(client) && now < at + CHANGE_MEMORY_MS)
    }

    pub(super) fn note_open(&mut self, key: &FileKey, client: ClientKey, now: u64) -> bool {
        let mut again = false;
        self.recent.note(key, |recent| {
            again = recent
                .opened
                .is_some_and(|(other, at)| other == client && now < at + REUSE_MEMORY_MS);
            recent.opened = Some((client, now));
        });
        again
    }
}

#[derive(Clone, Copy, Default)]
struct RecentFile {
    conflict_ms: Option<u64>,
    opened: Option<(ClientKey, u64)>,
    changed: Option<(Option<ClientKey>, u64)>,
}

struct Recent {
    files: Map<FileKey, RecentFile>,
    order: VecDeque<FileKey>,
}

impl Recent {
    fn note(&mut self, key: &FileKey, change: impl FnOnce(&mut RecentFile)) {
        if let Some(recent) = self.files.get_mut(key) {
            return change(recent);
        }
        if self.order.len() >= RECENT_FILES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.files.remove(&oldest);
        }
        let mut recent = RecentFile::default();
        change(&mut recent);
        self.files.insert(*key, recent);
        self.order.push_back(*key);
    }
}
