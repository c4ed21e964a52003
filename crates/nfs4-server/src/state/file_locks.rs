//! The byte ranges that are locked in one file, by all owners: who is in whose way, and who has how
//! many owners there. What each owner has is its own (`range`); this is told of each change.

use std::collections::BTreeMap;

use super::hash::Seed;
use super::id::{ClientKey, OwnerKey, StateKey};
use super::limits::LOCK_OWNERS_PER_FILE_MAX;
use super::overlaps::{Locked, Overlaps, Position, Search};
use super::places::{Place, fits, fits_client};
use super::range::{Change, Mode, Range};

/// A file's locks.
#[derive(Default)]
pub(super) struct FileLocks {
    shared: Overlaps,
    exclusive: Overlaps,
    /// Lock owners by where they come from, and by client.
    of_origin: BTreeMap<Place, usize>,
    of_client: BTreeMap<ClientKey, usize>,
    owners: usize,
}

impl FileLocks {
    /// Whether no lock owner is known here, with locks or without.
    pub(super) fn is_empty(&self) -> bool {
        self.owners == 0
    }

    /// The first lock of another than `owner` that keeps it from locking `range` in `mode`, behind
    /// a position if one is given. O(log n) in ranges locked.
    pub(super) fn conflict(&self, range: Range, mode: Mode, owner: Option<OwnerKey>, after: Option<Position>) -> Option<(Locked, Mode)> {
        let search = Search { range, except: owner, after };
        let exclusive = self.exclusive.find(&search).map(|held| (held, Mode::Exclusive));
        let shared = match mode {
            Mode::Shared => None,
            Mode::Exclusive => self.shared.find(&search).map(|held| (held, Mode::Shared)),
        };
        exclusive.into_iter().chain(shared).min_by_key(|(held, _)| held.position())
    }

    /// Whether this client may have one more lock owner here. One host, and one client of a host,
    /// gets its share.
    pub(super) fn has_room(&self, place: Place, client: ClientKey) -> bool {
        let of_origin = self.of_origin.get(&place).copied().unwrap_or(0);
        let of_client = self.of_client.get(&client).copied().unwrap_or(0);
        fits(of_origin, 1, self.owners, LOCK_OWNERS_PER_FILE_MAX)
            && fits_client(of_client, of_origin, self.owners, LOCK_OWNERS_PER_FILE_MAX)
    }

    /// A lock owner has come.
    pub(super) fn enter(&mut self, place: Place, client: ClientKey) {
        *self.of_origin.entry(place).or_default() += 1;
        *self.of_client.entry(client).or_default() += 1;
        self.owners += 1;
    }

    /// A lock owner has gone, with these ranges.
    pub(super) fn leave(&mut self, place: Place, client: ClientKey, lock: StateKey, ranges: impl Iterator<Item = (Range, Mode)>) {
        self.remove(lock, ranges);
        count_down(&mut self.of_origin, &place);
        count_down(&mut self.of_client, &client);
        self.owners -= 1;
    }

    /// An owner's ranges have changed. O(k log n) for k that have, or O(n) where that is less.
    pub(super) fn change(&mut self, lock: StateKey, owner: OwnerKey, change: &Change, seed: Seed) {
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

    fn of(&mut self, mode: Mode) -> &mut Overlaps {
        match mode {
            Mode::Shared => &mut self.shared,
            Mode::Exclusive => &mut self.exclusive,
        }
    }

    /// How many ranges are locked.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shared.len() + self.exclusive.len()
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let count = counts.get_mut(key).expect("who goes has come");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}
