//! Whether a path that was put together once is still good: each name on the way to it has a count
//! of how often it was moved, and a path remembers their sum. So a rename makes old what is at or
//! below it, and nothing else.
//!
//! Counts are shared by names whose hashes fall together, which costs a path that is put together
//! anew, and is never taken for good. The hash is seeded: nobody can choose names that fall
//! together with another's.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often names were moved.
pub(super) struct Stamps {
    counts: Box<[AtomicU64]>,
    /// How often anything was.
    moves: AtomicU64,
    seed: DefaultHasher,
}

/// A path, and when it was good.
pub(super) struct Stamped {
    pub(super) path: Arc<[u8]>,
    /// Places of its names' counts, and their sum then. Counts only grow, so the same sum means the
    /// same counts.
    places: Box<[u16]>,
    sum: u64,
}

impl Stamps {
    pub(super) fn new(seed: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed);
        Stamps { counts: (0..COUNT).map(|_| AtomicU64::new(0)).collect(), moves: AtomicU64::new(0), seed: hasher }
    }

    /// To be asked before a path is put together, and given to [`Stamps::stamp`] after.
    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// None if something was moved meanwhile: it may have been put together of what was before and
    /// what is now.
    pub(super) fn stamp(&self, path: Arc<[u8]>, moves: u64) -> Option<Arc<Stamped>> {
        let mut places = Vec::with_capacity(path.iter().filter(|byte| **byte == b'/').count());
        places.extend(self.each_place(&path));
        let places = places.into_boxed_slice();
        let sum = self.sum(&places);
        (self.moves() == moves).then(|| Arc::new(Stamped { path, places, sum }))
    }

    pub(super) fn is_good(&self, stamped: &Stamped) -> bool {
        self.sum(&stamped.places) == stamped.sum
    }

    /// What had this path has another now, or none, and so has what is below. To be called when
    /// that can be seen.
    pub(super) fn moved(&self, path: &[u8]) {
        if let Some(place) = self.last_place(path) {
            self.counts[usize::from(place)].fetch_add(1, Ordering::SeqCst);
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    /// Something was moved of which no path is known: nothing is good any more. O(counts): hardly
    /// ever.
    pub(super) fn all_moved(&self) {
        for count in &self.counts {
            count.fetch_add(1, Ordering::SeqCst);
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    fn sum(&self, places: &[u16]) -> u64 {
        places.iter().map(|place| self.counts[usize::from(*place)].load(Ordering::SeqCst)).fold(0, u64::wrapping_add)
    }

    /// The places of all names of a path, that of the whole last.
    fn each_place<'p>(&self, path: &'p [u8]) -> impl Iterator<Item = u16> + use<'p> {
        let mut hasher = self.seed.clone();
        names(path).map(move |name| {
            write(&mut hasher, name);
            place(&hasher)
        })
    }

    /// The place of the whole path.
    fn last_place(&self, path: &[u8]) -> Option<u16> {
        let mut hasher = self.seed.clone();
        names(path).map(|name| write(&mut hasher, name)).last().map(|()| place(&hasher))
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

fn write(hasher: &mut DefaultHasher, name: &[u8]) {
    hasher.write(name);
    // No name has it in it, so that two names are not taken for one.
    hasher.write_u8(b'/');
}

fn place(hasher: &DefaultHasher) -> u16 {
    (hasher.finish() % COUNT) as u16
}

/// So many as stay in the second level of a CPU's cache: with each name that is removed one of
/// these changes, and a path that it makes old by chance is put together anew.
const COUNT: u64 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_makes_old_what_is_at_or_below_it_and_nothing_else() {
        let stamps = Stamps::new(7);
        let paths = ["/srv", "/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv/ab", "/srv/b/a", "/other/a"];
        let stamp = || paths.map(|path| stamps.stamp(path.as_bytes().into(), stamps.moves()).unwrap());
        let good = |all: &[Arc<Stamped>]| all.iter().map(|one| stamps.is_good(one)).collect::<Vec<_>>();
        let before = stamp();
        assert_eq!(good(&before), [true; 7]);
        stamps.moved(b"/srv/a");
        assert_eq!(good(&before), [true, false, false, false, true, true, true]);
        let again = stamp();
        assert_eq!(good(&again), [true; 7]);
        stamps.moved(b"/srv/a/b/c");
        assert_eq!(good(&again), [true, true, true, false, true, true, true]);
        stamps.all_moved();
        assert_eq!(good(&stamp()), [true; 7]);
        assert_eq!(good(&again), [false; 7]);
    }

    #[test]
    fn the_place_of_a_path_is_the_last_of_its_names() {
        let stamps = Stamps::new(7);
        for path in ["", "/", "/srv", "/srv/a", "/srv//a/b/", "srv"] {
            assert_eq!(stamps.last_place(path.as_bytes()), stamps.each_place(path.as_bytes()).last(), "{path}");
        }
    }

    #[test]
    fn what_was_put_together_while_something_moved_is_not_kept() {
        let stamps = Stamps::new(7);
        let moves = stamps.moves();
        stamps.moved(b"/elsewhere");
        assert!(stamps.stamp(b"/srv/a"[..].into(), moves).is_none());
    }
}
