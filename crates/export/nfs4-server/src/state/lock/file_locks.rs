use std::collections::BTreeMap;

use vouch_vfs::mutant;

use crate::state::hash::Seed;
use crate::state::id::{OwnerKey, StateKey};
use crate::state::limits::LOCK_OWNERS_PER_FILE_MAX;
use crate::state::lock::interval_tree::{IntervalTree, Locked, Position, Search};
use crate::state::lock::range::{Change, Mode, Range};
use crate::state::open::file_opens::count_down;
use crate::state::quota::{SourceKey, within_share};

#[derive(Default)]
pub(in crate::state) struct FileLocks {
    shared: IntervalTree,
    exclusive: IntervalTree,
    of_source: BTreeMap<SourceKey, usize>,
    owners: usize,
}

impl FileLocks {
    pub(in crate::state) fn is_empty(&self) -> bool {
        self.owners == 0
    }

    /// The first of another owner, after a position if given.
    pub(in crate::state) fn conflict(
        &self,
        range: Range,
        mode: Mode,
        owner: Option<OwnerKey>,
        after: Option<Position>,
    ) -> Option<(Locked, Mode)> {
        let range = match mutant("adjacent-locks-conflict") {
            true => Range { last: range.last.saturating_add(1), ..range },
            false => range,
        };
        let search = Search { range, except: owner, after };
        let exclusive = self.exclusive.find(&search).map(|held| (held, Mode::Exclusive));
        let shared = match mode {
            Mode::Shared => None,
            Mode::Exclusive if mutant("write-lock-ignores-read-locks") => None,
            Mode::Exclusive => self.shared.find(&search).map(|held| (held, Mode::Shared)),
        };
        exclusive.into_iter().chain(shared).min_by_key(|(held, _)| held.position())
    }

    pub(in crate::state) fn has_room(&self, source: SourceKey) -> bool {
        within_share(
            self.of_source.get(&source).copied().unwrap_or(0),
            1,
            self.owners,
            LOCK_OWNERS_PER_FILE_MAX,
        )
    }

    pub(in crate::state) fn add_owner(&mut self, source: SourceKey) {
        *self.of_source.entry(source).or_default() += 1;
        self.owners += 1;
    }

    pub(in crate::state) fn remove_owner(
        &mut self,
        source: SourceKey,
        lock: StateKey,
        ranges: impl Iterator<Item = (Range, Mode)>,
    ) {
        self.remove(lock, ranges);
        count_down(&mut self.of_source, &source);
        self.owners -= 1;
    }

    /// O(k log n) for k changed ranges, or O(n) if less.
    pub(in crate::state) fn change(
        &mut self,
        lock: StateKey,
        owner: OwnerKey,
        change: &Change,
        seed: Seed,
    ) {
        self.remove(lock, change.removed.iter().copied());
        for &(range, mode) in &change.added {
            self.of(mode).add(Locked { range, lock, owner }, seed);
        }
    }

    fn remove(&mut self, lock: StateKey, ranges: impl Iterator<Item = (Range, Mode)>) {
        let (mut shared, mut exclusive) = (Vec::new(), Vec::new());
        for (range, mode) in ranges {
            match mode {
                Mode::Shared => shared.push(range),
                Mode::Exclusive => exclusive.push(range),
            }
        }
        self.shared.remove(lock, &shared);
        self.exclusive.remove(lock, &exclusive);
    }

    fn of(&mut self, mode: Mode) -> &mut IntervalTree {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    #[cfg(test)]
    pub(in crate::state) fn len(&self) -> usize {
        self.shared.len() + self.exclusive.len()
    }
}
