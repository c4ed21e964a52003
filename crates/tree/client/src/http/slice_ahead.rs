//! Which slices of a pack to fetch ahead: files read in sequence often lie in the same packs, in
//! another order.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct SliceAhead {
    demanded: BTreeSet<u64>,
    unused: BTreeSet<u64>,
}

impl SliceAhead {
    /// Returns slices to fetch ahead: the nearest after, then before. Unused ones are at most half
    /// of the demanded ones, so single reads cost nothing.
    pub(super) fn on_demand(&mut self, number: u64, count: u64) -> Vec<u64> {
        let mut ahead = Vec::new();
        if !self.demanded.insert(number) {
            return ahead;
        }
        self.unused.remove(&number);
        let unused_max = (self.demanded.len() / 2).min(AHEAD_MAX);
        for next in (number + 1..count).chain((0..number).rev()) {
            if self.unused.len() >= unused_max {
                break;
            }
            if !self.demanded.contains(&next) && self.unused.insert(next) {
                ahead.push(next);
            }
        }
        ahead
    }
}

const AHEAD_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fetches_no_slice_twice_and_few_in_vain(count in 1..40u64, demands in proptest::collection::vec(0..40u64, 1..80)) {
            let (mut policy, mut fetched, mut needed) = (SliceAhead::default(), BTreeSet::new(), BTreeSet::new());
            for number in demands.into_iter().filter(|number| *number < count) {
                fetched.insert(number);
                needed.insert(number);
                for number in policy.on_demand(number, count) {
                    prop_assert!(number < count && fetched.insert(number));
                }
                let unused = fetched.difference(&needed).count();
                prop_assert!(unused <= AHEAD_MAX && unused * 2 <= needed.len());
            }
        }
    }

    #[test]
    fn a_dense_reader_soon_finds_its_slices_fetched() {
        let (mut policy, mut fetched, mut waits) = (SliceAhead::default(), BTreeSet::new(), 0);
        for number in 0..32 {
            waits += usize::from(fetched.insert(number));
            fetched.extend(policy.on_demand(number, 32));
        }
        assert_eq!(waits, 2);
    }
}
