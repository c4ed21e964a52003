//! Finds reads that repeat at a distance, as those of a few columns of a table, and says what comes
//! next. Does no I/O.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;

use crate::file::known_layout::{KnownLayout, Layout};

/// Columns of a table that are found: half as many, because two rounds of them must be known.
const RUNS_MAX: usize = 64;

/// Reads of one run may leave out so many bytes, or come in another order.
const GAP_MAX: u64 = 64 * 1024;

const DOUBLINGS_MAX: usize = 4;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RepeatedReads {
    /// The oldest first.
    runs: VecDeque<Range<u64>>,
    /// Predicted, and not read yet.
    unread: Vec<Range<u64>>,
    /// How many predicted ranges were read.
    hits: usize,
    /// The largest of all chains.
    deviation: u64,
    /// Its first predictions are from the layout of another file.
    is_guessed: bool,
}

/// Three runs at nearly equal distances.
struct Chain {
    distance: u64,
    /// By how much the distances differ.
    deviation: u64,
    last: Range<u64>,
    len: u64,
}

impl RepeatedReads {
    /// Ranges to fetch, the nearest first. Those that are not read yet are at most as long as eight
    /// reads; each of the first predicted reads doubles this. `known`: of the tree. O(runs²).
    pub(crate) fn on_read(
        &mut self,
        read: &Range<u64>,
        size: u64,
        window_max: u64,
        known: &Mutex<KnownLayout>,
    ) -> Vec<Range<u64>> {
        if self.extends_run(read) {
            return Vec::new();
        }
        let found = self.chain(read);
        if found.is_some() && self.is_guessed && self.hits == 0 {
            // A wrong guess must not take the room.
            self.unread.clear();
            self.is_guessed = false;
        }
        let Some(chain) = found.or_else(|| self.guess(read, &mut known.lock())) else {
            return Vec::new();
        };
        if self.hits > 0 {
            known.lock().learn(Layout { distance: chain.distance, len: chain.len });
        }
        let len_max = window_max.min(chain.len.saturating_mul(8 << self.doublings()));
        self.predict(&chain, size, len_max)
    }

    /// Continues the layout of another file until this one has a chain.
    fn guess(&mut self, read: &Range<u64>, known: &mut KnownLayout) -> Option<Chain> {
        let read_len = read.end - read.start;
        let Layout { distance, len } = match self.is_guessed {
            true => known.layout_of(read_len),
            false => known.guess(read_len),
        }?;
        self.is_guessed = true;
        Some(Chain { distance, deviation: 0, last: read.clone(), len })
    }

    /// A right guess counts as much as many predictions.
    fn doublings(&self) -> usize {
        let is_confirmed = self.is_guessed && self.hits > 0;
        if is_confirmed { DOUBLINGS_MAX } else { self.hits.min(DOUBLINGS_MAX) }
    }

    /// Notes a read. False: it begins a run.
    pub(crate) fn extends_run(&mut self, read: &Range<u64>) -> bool {
        let count = self.unread.len();
        self.unread.retain(|range| !touches(range, read, 0));
        self.hits += count - self.unread.len();
        if let Some(run) = self.runs.iter_mut().rfind(|run| touches(run, read, GAP_MAX)) {
            *run = run.start.min(read.start)..run.end.max(read.end);
            return true;
        }
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(read.clone());
        false
    }

    fn predict(&mut self, chain: &Chain, size: u64, len_max: u64) -> Vec<Range<u64>> {
        let (mut predicted, mut len) = (Vec::new(), bytes(&self.unread));
        self.deviation = self.deviation.max(chain.deviation);
        // Few at first, so that all columns find room.
        for step in 1..=4u64 << self.doublings() {
            let start = chain.last.start.saturating_add(chain.distance.saturating_mul(step));
            let around = self.deviation.saturating_mul(step).min(chain.len / 4);
            let end = start.saturating_add(chain.len).saturating_add(around).min(size);
            let next = start - around.min(start)..end;
            len = len.saturating_add(next.end.saturating_sub(next.start));
            if next.start >= next.end || len > len_max {
                break;
            }
            let is_known = |known: &Range<u64>| touches(known, &next, 0);
            if self.runs.iter().chain(&self.unread).any(is_known) {
                len -= next.end - next.start;
            } else {
                self.unread.push(next.clone());
                predicted.push(next);
            }
        }
        predicted
    }

    /// Of the shortest distance. `newest` is any of its three runs: threads read in any order.
    fn chain(&self, newest: &Range<u64>) -> Option<Chain> {
        let chains = self.runs.iter().filter(|run| *run != newest).filter_map(|other| {
            let (low, high) =
                if other.start < newest.start { (other, newest) } else { (newest, other) };
            let distance = high.start - low.start;
            self.runs.iter().find_map(|third| {
                let (deviation, last) = if third.start > high.start {
                    ((third.start - high.start).abs_diff(distance), third)
                } else if third.start < low.start {
                    ((low.start - third.start).abs_diff(distance), high)
                } else {
                    return None;
                };
                // The newest run may have only begun.
                let lens = [other, third, newest].map(|run| run.end - run.start);
                let len = lens[0].max(lens[1]);
                let is_alike = len / 2 <= lens[0].min(lens[1]) && lens[2] / 2 <= len;
                (is_alike && deviation <= len / 4 && distance > len).then(|| Chain {
                    distance,
                    deviation,
                    last: last.clone(),
                    len,
                })
            })
        });
        chains.min_by_key(|chain| chain.distance)
    }
}

fn touches(one: &Range<u64>, other: &Range<u64>, gap: u64) -> bool {
    one.start <= other.end.saturating_add(gap) && other.start <= one.end.saturating_add(gap)
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const ROWS: u64 = 16 * MIB + 4321;

    /// Reads of two columns in 40 row groups, of which the result had been fetched ahead.
    fn found(noise: u64, is_mixed: bool, split: u64) -> usize {
        found_in(noise, is_mixed, split, &Mutex::default())
    }

    fn found_in(noise: u64, is_mixed: bool, split: u64, known: &Mutex<KnownLayout>) -> usize {
        const LEAF: u64 = 128 << 10;
        let (mut reads, mut fetched, mut found) = (RepeatedReads::default(), Vec::new(), 0);
        let column = |row: u64, column: u64| row * ROWS + column * MIB + row * 7919 % (noise + 1);
        let mut wanted: Vec<u64> =
            (0..40).flat_map(|row| [column(row, 3), column(row, 7)]).collect();
        if is_mixed {
            wanted.chunks_mut(6).for_each(|some| some.reverse());
        }
        for start in wanted {
            let read = start..start + MIB;
            found += usize::from(fetched.iter().any(|range: &Range<u64>| {
                range.start / LEAF * LEAF <= read.start
                    && read.end <= range.end.next_multiple_of(LEAF)
            }));
            for part in (read.start..read.end).step_by(split as usize) {
                fetched.extend(reads.on_read(&(part..part + split), 41 * ROWS, 16 * MIB, known));
            }
        }
        found
    }

    #[test]
    fn reads_of_columns_are_fetched_ahead() {
        assert_eq!(found(0, false, MIB), 80 - 2 * 3);
        assert!(found(0, true, MIB) >= 80 - 16, "threads read out of order");
        assert_eq!(found(0, false, MIB / 8), 80 - 2 * 3, "a kernel splits reads");
        assert!(found(50_000, false, MIB) >= 80 - 16, "row groups differ in length");
    }

    #[test]
    fn files_with_the_layout_of_an_earlier_one_are_fetched_from_their_first_read() {
        for (noise, is_mixed, more) in [(0, false, 4), (0, true, 0), (50_000, false, 4)] {
            let known = Mutex::default();
            let first = found_in(noise, is_mixed, MIB, &known);
            let second = found_in(noise, is_mixed, MIB, &known);
            assert!(second >= first + more, "{first}, then {second}");
        }
    }

    #[test]
    fn wrong_guess_leaves_a_file_its_own_layout() {
        let known = Mutex::new(KnownLayout::default());
        known.lock().learn(Layout { distance: 40 * MIB, len: MIB });
        assert_eq!(found_in(0, false, MIB, &known), 80 - 2 * 3);
    }

    #[test]
    fn wrong_guesses_end() {
        let known = Mutex::new(KnownLayout::default());
        known.lock().learn(Layout { distance: 16 * MIB, len: MIB });
        let reads_one =
            |_| RepeatedReads::default().on_read(&(MIB..2 * MIB), 1000 * MIB, 32 * MIB, &known);
        let fetched: Vec<_> = (0..100).flat_map(reads_one).collect();
        assert!(!fetched.is_empty() && bytes(&fetched) <= 8 * 8 * MIB);
    }

    #[test]
    fn files_of_any_size_are_read() {
        let (mut reads, known) = (RepeatedReads::default(), Mutex::default());
        for start in [0, u64::MAX / 3, u64::MAX / 3 * 2, u64::MAX - 10] {
            let found = reads.on_read(&(start..u64::MAX), u64::MAX, u64::MAX, &known);
            assert!(found.iter().all(|range| range.start < range.end));
        }
        for start in [1, 1 << 62, 1 << 63] {
            reads.on_read(&(start..start + 1), u64::MAX, u64::MAX, &known);
        }
    }

    proptest! {
        #[test]
        fn few_bytes_are_fetched_in_vain(
            reads in proptest::collection::vec((0..1000 * MIB, 1..MIB), 1..300),
            max in 0..8 * MIB,
            layout in proptest::option::of((1..16 * MIB, 1..MIB)),
        ) {
            let (mut file, mut read_bytes, mut fetched) = (RepeatedReads::default(), 0, Vec::<Range<u64>>::new());
            let known = Mutex::<KnownLayout>::default();
            if let Some((distance, len)) = layout {
                known.lock().learn(Layout { distance, len });
            }
            for (start, len) in reads {
                read_bytes += len;
                for range in file.on_read(&(start..start + len), 1000 * MIB, max, &known) {
                    prop_assert!(range.start < range.end && range.end <= 1000 * MIB);
                    fetched.push(range);
                }
                prop_assert!(bytes(&file.unread) <= max);
            }
            prop_assert!(bytes(&fetched) <= 2 * max + 2 * read_bytes);
        }
    }
}
