use std::collections::BTreeMap;

use vouch_nfs4::Status;

/// Both ends inclusive. `u64::MAX` means the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(in crate::state) first: u64,
    pub(in crate::state) last: u64,
}

impl Range {
    pub(in crate::state) const ALL: Range = Range { first: 0, last: u64::MAX };

    /// A length of all ones reaches the end of the file. INVAL for length zero or an end beyond
    /// 2^64 (RFC 8881 §18.10.3).
    pub(crate) fn new(offset: u64, length: u64) -> Result<Self, Status> {
        let last = match length {
            0 => return Err(Status::INVAL),
            u64::MAX => u64::MAX,
            2.. if vouch_vfs::mutant("lock-misses-last-byte") => offset + length - 2,
            _ => offset.checked_add(length).ok_or(Status::INVAL)? - 1,
        };
        Ok(Range { first: offset, last })
    }

    pub(crate) fn offset(self) -> u64 {
        self.first
    }

    pub(crate) fn length(self) -> u64 {
        match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        }
    }

    pub(in crate::state) fn hull(self, other: Range) -> Range {
        Range { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    pub(in crate::state) fn overlaps(self, other: Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    pub(in crate::state) fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// Disjoint, in order, adjacent ranges of one mode joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct Ranges(BTreeMap<u64, (u64, Mode)>);

#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct Change {
    pub(in crate::state) removed: Vec<(Range, Mode)>,
    pub(in crate::state) added: Vec<(Range, Mode)>,
}

impl Ranges {
    pub(in crate::state) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::state) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::state) fn hull(&self) -> Option<Range> {
        let (&first, &(last, _)) = (self.0.first_key_value()?.0, self.0.last_key_value()?.1);
        Some(Range { first, last })
    }

    pub(in crate::state) fn iter(&self) -> impl Iterator<Item = (Range, Mode)> {
        self.0.iter().map(|(&first, &(last, mode))| (Range { first, last }, mode))
    }

    fn overlapping(&self, range: Range) -> impl Iterator<Item = (Range, Mode)> {
        let before =
            self.0.range(..=range.first).next_back().filter(|(_, (last, _))| *last >= range.first);
        let from = before.map_or(range.first, |(&first, _)| first);
        self.0.range(from..=range.last).map(|(&first, &(last, mode))| (Range { first, last }, mode))
    }

    pub(in crate::state) fn splits(&self, range: Range) -> bool {
        self.overlapping(range)
            .next()
            .is_some_and(|(held, _)| held.first < range.first && held.last > range.last)
    }

    /// Mode `None` unlocks. The rest of a partly covered range stays (RFC 8881 §9.5 and 18.12). O(k
    /// log n).
    pub(in crate::state) fn set(&mut self, range: Range, mode: Option<Mode>) -> Change {
        let mut change = Change::default();
        let mut new = range;
        let touched =
            Range { first: range.first.saturating_sub(1), last: range.last.saturating_add(1) };
        for (held, held_mode) in self.overlapping(touched) {
            if mode == Some(held_mode) {
                new = new.hull(held);
            } else if held.overlaps(range) {
                if held.first < range.first {
                    change
                        .added
                        .push((Range { first: held.first, last: range.first - 1 }, held_mode));
                }
                if held.last > range.last {
                    change
                        .added
                        .push((Range { first: range.last + 1, last: held.last }, held_mode));
                }
            } else {
                continue;
            }
            change.removed.push((held, held_mode));
        }
        change.added.extend(mode.map(|mode| (new, mode)));
        for (gone, _) in &change.removed {
            self.0.remove(&gone.first);
        }
        for &(Range { first, last }, mode) in &change.added {
            self.0.insert(first, (last, mode));
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn range_keeps_64_bit_ends() {
        // RFC 8881 §18.10.3.
        assert_eq!(Range::new(0, 0), Err(Status::INVAL));
        assert_eq!(Range::new(u64::MAX, u64::MAX), Ok(Range { first: u64::MAX, last: u64::MAX }));
        assert_eq!(Range::new(1, u64::MAX - 1).map(Range::length), Ok(u64::MAX - 1));
        assert_eq!(Range::new(2, u64::MAX - 1), Err(Status::INVAL));
        assert_eq!(Range::new(5, u64::MAX).map(Range::length), Ok(u64::MAX));
    }

    proptest! {
        #[test]
        fn ranges_are_a_map_of_bytes(steps in prop::collection::vec((0u64..24, 1u64..10, 0u8..3), 1..40)) {
            const LEN: usize = 32;
            let mut model = [None; LEN];
            let mut ranges = Ranges::default();
            for (first, len, mode) in steps {
                let to_end = first + len >= LEN as u64;
                let range = Range { first, last: if to_end { u64::MAX } else { first + len - 1 } };
                let mode = [None, Some(Mode::Shared), Some(Mode::Exclusive)][usize::from(mode)];
                let mut mirror: Vec<_> = ranges.iter().collect();
                let change = ranges.set(range, mode);
                prop_assert!(change.removed.is_sorted_by_key(|(gone, _)| gone.first));
                mirror.retain(|held| !change.removed.contains(held));
                mirror.extend(&change.added);
                mirror.sort_by_key(|(held, _)| held.first);
                prop_assert_eq!(mirror, ranges.iter().collect::<Vec<_>>(), "the change lists all ranges");
                model.iter_mut().enumerate().filter(|(at, _)| *at as u64 >= first && (*at as u64) <= range.last).for_each(|(_, byte)| *byte = mode);
                for (at, byte) in model.iter().enumerate() {
                    let place = match at { 31 => u64::MAX, at => at as u64 };
                    let one = Range { first: place, last: place };
                    let held = ranges.iter().find(|(range, _)| range.overlaps(one)).map(|(_, mode)| mode);
                    prop_assert_eq!(held, *byte);
                    prop_assert_eq!(ranges.overlapping(one).next().is_some(), byte.is_some());
                }
                for pair in ranges.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[0].0.last < pair[1].0.first, "in order");
                    prop_assert!(pair[0].1 != pair[1].1 || pair[0].0.last + 1 < pair[1].0.first, "joined");
                }
            }
        }
    }
}
