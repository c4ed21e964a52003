//! Takes reads, returns ranges to fetch. Does no I/O.

use std::ops::Range;

use parking_lot::Mutex;

use crate::file::known_layout::KnownLayout;
use crate::file::repeated_reads::RepeatedReads;

const WINDOW_MIN: u64 = 256 * 1024;

/// The kernel splits and reorders reads. A read within this distance of the expected offset counts as sequential.
const SLACK: u64 = 1024 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReadAhead {
    expected: u64,
    window: u64,
    fetched: u64,
    repeated: RepeatedReads,
}

impl ReadAhead {
    /// Ranges to fetch, the nearest first. `known`: the layout of the tree's files.
    pub(crate) fn on_read(
        &mut self,
        offset: u64,
        len: u64,
        size: u64,
        window_max: u64,
        known: &Mutex<KnownLayout>,
    ) -> Vec<Range<u64>> {
        let end = offset.saturating_add(len).min(size);
        let is_sequential = offset.saturating_add(SLACK) >= self.expected
            && offset <= self.expected.saturating_add(SLACK);
        if offset >= size || window_max == 0 {
            return Vec::new();
        }
        if !is_sequential {
            (self.expected, self.window, self.fetched) = (end, 0, end);
            return self.repeated.on_read(&(offset..end), size, window_max, known);
        }
        self.repeated.extends_run(&(offset..end));
        self.on_sequential_read(offset..end, size, window_max).into_iter().collect()
    }

    fn on_sequential_read(
        &mut self,
        read: Range<u64>,
        size: u64,
        window_max: u64,
    ) -> Option<Range<u64>> {
        let first = self.expected == 0;
        self.expected = self.expected.max(read.end);
        self.fetched = self.fetched.max(self.expected);
        if first && read.end < size.min(WINDOW_MIN) {
            return None;
        }
        if self.fetched - self.expected > self.window / 2 || self.fetched >= size {
            return None;
        }
        // The next read is as long as this one.
        let len = if first { 0 } else { read.end - read.start };
        self.window = (self.window * 2).max(len).clamp(WINDOW_MIN.min(window_max), window_max);
        let start = self.fetched;
        self.fetched = self.expected.saturating_add(self.window).min(size);
        (start < self.fetched).then_some(start..self.fetched)
    }

    /// Bytes behind a reader that has read in sequence for long: as many as it has read now.
    pub(crate) fn behind(&self, offset: u64, len: u64, window_max: u64) -> Option<Range<u64>> {
        let end = offset.checked_sub(SLACK)?;
        (self.window > 0 && self.window >= window_max && end < self.expected)
            .then(|| end.saturating_sub(len)..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn window_grows_ahead_of_sequential_reader() {
        let mut ahead = ReadAhead::default();
        let (size, mut fetched, mut longest) = (64 * MIB, 0, 0);
        for offset in (0..size).step_by(128 * 1024) {
            if offset > 0 {
                assert!(
                    fetched >= offset,
                    "the read at {offset} is beyond the window, which ends at {fetched}"
                );
            }
            for range in ahead.on_read(offset, 128 * 1024, size, 8 * MIB, &Mutex::default()) {
                longest = longest.max(range.end - range.start);
                fetched = range.end;
            }
            fetched = fetched.max(offset + 128 * 1024);
        }
        assert!(longest >= 4 * MIB);
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let mut ahead = ReadAhead::default();
        for offset in [40 * MIB, 8 * MIB, 90 * MIB, 21 * MIB, 63 * MIB] {
            assert_eq!(ahead.on_read(offset, 8192, 100 * MIB, 8 * MIB, &Mutex::default()), []);
        }
    }

    proptest! {
        /// No range is fetched twice within a run, and none exceeds the file or window.
        #[test]
        fn ranges_are_ahead_of_the_reader_and_within_bounds(
            size in 1..100 * MIB,
            max in 0..16 * MIB,
            reads in proptest::collection::vec((0..100 * MIB, 1..2 * MIB, any::<bool>()), 1..200),
        ) {
            let (mut ahead, mut next) = (ReadAhead::default(), 0);
            for (offset, len, sequential) in reads {
                let offset = if sequential { next } else { offset };
                let before = ahead.clone();
                let end = offset.saturating_add(len).min(size);
                for range in ahead.on_read(offset, len, size, max, &Mutex::default()) {
                    prop_assert!(range.start < range.end && range.end <= size);
                    if ahead.window == 0 {
                        continue; // Predicted from reads at a distance.
                    }
                    prop_assert!(range.end - ahead.expected <= max);
                    prop_assert!(range.start >= before.fetched, "fetched twice");
                    prop_assert!(range.start >= end || range.start >= before.fetched);
                }
                next = end;
            }
        }
    }
}
