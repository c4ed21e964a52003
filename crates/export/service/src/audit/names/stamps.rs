//! Each name has a move counter, and a stamp is the sum of the counters along its path: a rename
//! invalidates only paths at or below it. Names may share a counter by a secretly seeded hash,
//! which may invalidate a valid path, never the reverse.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) struct Stamps {
    counts: Box<[AtomicU64]>,
    moves: AtomicU64,
    seed: DefaultHasher,
}

pub(super) struct Stamped {
    pub(super) path: Arc<[u8]>,
    /// Counters only grow, so an equal sum means no move.
    places: Box<[u16]>,
    sum: u64,
}

impl Stamps {
    pub(super) fn new(seed: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed);
        Stamps {
            counts: (0..COUNT).map(|_| AtomicU64::new(0)).collect(),
            moves: AtomicU64::new(0),
            seed: hasher,
        }
    }

    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// None after a move: the path may mix old and new names.
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

    /// Also all paths below, once the change is visible.
    pub(super) fn moved(&self, path: &[u8]) {
        if let Some(place) = self.last_place(path) {
            self.counts[usize::from(place)].fetch_add(1, Ordering::SeqCst);
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn all_moved(&self) {
        for count in &self.counts {
            count.fetch_add(1, Ordering::SeqCst);
        }
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    fn sum(&self, places: &[u16]) -> u64 {
        places
            .iter()
            .map(|place| self.counts[usize::from(*place)].load(Ordering::SeqCst))
            .fold(0, u64::wrapping_add)
    }

    fn each_place<'p>(&self, path: &'p [u8]) -> impl Iterator<Item = u16> + use<'p> {
        let mut hasher = self.seed.clone();
        names(path).map(move |name| {
            write(&mut hasher, name);
            place(&hasher)
        })
    }

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
    // Names never contain this byte.
    hasher.write_u8(b'/');
}

fn place(hasher: &DefaultHasher) -> u16 {
    (hasher.finish() % COUNT) as u16
}

/// Fits into a second-level cache.
const COUNT: u64 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn move_invalidates_paths_at_or_below_it() {
        let stamps = Stamps::new(7);
        let paths = ["/srv", "/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv/ab", "/srv/b/a", "/other/a"];
        let stamp =
            || paths.map(|path| stamps.stamp(path.as_bytes().into(), stamps.moves()).unwrap());
        let good =
            |all: &[Arc<Stamped>]| all.iter().map(|one| stamps.is_good(one)).collect::<Vec<_>>();
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
    fn last_counter_belongs_to_whole_path() {
        let stamps = Stamps::new(7);
        for path in ["", "/", "/srv", "/srv/a", "/srv//a/b/", "srv"] {
            assert_eq!(
                stamps.last_place(path.as_bytes()),
                stamps.each_place(path.as_bytes()).last(),
                "{path}"
            );
        }
    }

    #[test]
    fn path_joined_during_move_is_not_cached() {
        let stamps = Stamps::new(7);
        let moves = stamps.moves();
        stamps.moved(b"/elsewhere");
        assert!(stamps.stamp(b"/srv/a"[..].into(), moves).is_none());
    }
}
