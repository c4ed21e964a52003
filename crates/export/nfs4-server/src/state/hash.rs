//! A secret seed prevents chosen collisions.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use foldhash::fast::{FixedState, FoldHasher};

#[derive(Clone, Copy)]
pub(super) struct Seed(pub(super) u64);

impl BuildHasher for Seed {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        FixedState::with_seed(self.0).build_hasher()
    }
}

pub(super) type Map<K, V> = HashMap<K, V, Seed>;
pub(super) type Set<K> = HashSet<K, Seed>;
