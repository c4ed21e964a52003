//! Counts over time, in a bounded number of equal columns.

use std::collections::BTreeMap;

use super::Count;

const BARS: u64 = 60;
/// Slots before they are joined into columns: enough for nearly equal columns.
const SLOTS_MAX: usize = 4096;
const SECOND_NS: u64 = 1_000_000_000;

/// A slot starts at one second and doubles whenever there are too many.
pub(super) struct Timeline {
    slot_s: u64,
    slots: BTreeMap<u64, Count>,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline { slot_s: 1, slots: BTreeMap::new() }
    }
}

impl Timeline {
    pub(super) fn add(&mut self, time_ns: u64, count: Count) {
        self.slots.entry(time_ns / SECOND_NS / self.slot_s).or_default().add(count);
        while self.slots.len() > SLOTS_MAX {
            self.slot_s *= 2;
            for (slot, count) in std::mem::take(&mut self.slots) {
                self.slots.entry(slot / 2).or_default().add(count);
            }
        }
    }

    /// Start of each column, in nanoseconds since 1970, and its counts.
    pub(super) fn bars(self) -> Vec<(u64, Count)> {
        let (Some(first), Some(last)) =
            (self.slots.keys().next().copied(), self.slots.keys().next_back().copied())
        else {
            return Vec::new();
        };
        // Whole slots only, so columns never share a slot.
        let width = (last - first + 1).div_ceil(BARS);
        let begins =
            |at: u64| (first + at * width).saturating_mul(self.slot_s).saturating_mul(SECOND_NS);
        let mut bars: Vec<_> =
            (0..=(last - first) / width).map(|at| (begins(at), Count::default())).collect();
        for (slot, count) in self.slots {
            bars[((slot - first) / width) as usize].1.add(count);
        }
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(count: u64, every_ms: u64) -> Vec<u64> {
        let mut timeline = Timeline::default();
        let begun = 1_700_000_042 * SECOND_NS;
        (0..count).for_each(|at| {
            timeline
                .add(begun + at * every_ms * 1_000_000, Count { records: 1, ..Count::default() })
        });
        let bars = timeline.bars();
        assert!(bars.len() <= BARS as usize && bars.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let bars: Vec<_> = bars.iter().map(|(_, count)| count.records).collect();
        assert_eq!(bars.iter().sum::<u64>(), count);
        bars
    }

    #[test]
    fn even_load_gives_even_columns() {
        for (count, every_ms) in [
            (500, 10),
            (1000, 100),
            (1200, 1000),
            (6000, 1000),
            (20_000, 1000),
            (50_000, 60_000),
            (9000, 3_600_000),
        ] {
            let bars = bars(count, every_ms);
            let (least, most) =
                (bars[..bars.len() - 1].iter().min().unwrap(), bars.iter().max().unwrap());
            assert!(
                bars.len() >= 2 && most - least <= most / 10 + 1,
                "{count} each {every_ms} ms: {bars:?}"
            );
        }
    }

    #[test]
    fn any_times_give_valid_columns() {
        let mut timeline = Timeline::default();
        for time in [0, u64::MAX, 7, u64::MAX / 2] {
            timeline.add(time, Count { records: 1, ..Count::default() });
        }
        assert_eq!(timeline.bars().iter().map(|(_, count)| count.records).sum::<u64>(), 4);
        assert_eq!(Timeline::default().bars().len(), 0);
        assert_eq!(bars(1, 1), [1]);
    }
}
