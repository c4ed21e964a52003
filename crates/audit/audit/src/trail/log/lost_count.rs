//! Records that a failing disk did not take, reported at the next start. A full disk accepts
//! changes of the preallocated file.

use std::io;
use std::path::Path;

use crate::chain::digest;
use crate::trail::Disk;

pub(crate) const LOST_COUNT_FILE: &str = "lost";

/// Records that are in no segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostCount {
    /// Lost: from the trail's end up to this sequence number (exclusive).
    pub next_seq: u64,
    /// Further lost records, without sequence numbers.
    pub unnumbered: u64,
    /// Last successful write, nanoseconds since 1970.
    pub since_ns: u64,
    /// Lost gap records: their sequence numbers, and the records that each stands for.
    pub gaps: Vec<(u64, u64)>,
    /// Sequence number of the record that reports this loss, or 0.
    pub report_seq: u64,
}

impl LostCount {
    /// Lost records if the trail continues at `next_seq`, or 0 if they were reported.
    pub fn count(&self, next_seq: u64) -> u64 {
        if self.report_seq > 0 && next_seq > self.report_seq {
            return 0;
        }
        let gaps = self.gaps.iter().filter(|(seq, _)| *seq >= next_seq);
        let (records, represented) = gaps.fold((0, 0u64), |(records, sum), (_, count)| {
            (records + 1, sum.saturating_add(*count))
        });
        self.next_seq
            .saturating_sub(next_seq)
            .saturating_sub(records)
            .saturating_add(self.unnumbered)
            .saturating_add(represented)
    }

    /// The content of the file.
    pub fn encode(&self) -> [u8; LOST_LEN] {
        let mut gaps = self.gaps.clone();
        while gaps.len() > GAPS_MAX {
            let (seq, count) = gaps.pop().unwrap_or_default();
            if let Some(last) = gaps.last_mut() {
                *last = (seq, last.1.saturating_add(count));
            }
        }
        let mut bytes = [0; LOST_LEN];
        let numbers = [self.next_seq, self.unnumbered, self.since_ns, gaps.len() as u64];
        let numbers =
            numbers.into_iter().chain(gaps.into_iter().flat_map(|(seq, count)| [seq, count]));
        for (at, number) in numbers.enumerate() {
            bytes[SUM_LEN + at * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[LOST_LEN - 8..].copy_from_slice(&self.report_seq.to_le_bytes());
        let sum = digest(&bytes[SUM_LEN..]);
        bytes[..SUM_LEN].copy_from_slice(&sum[..SUM_LEN]);
        bytes
    }

    /// `None` if the file is damaged or records no loss.
    pub fn decode(bytes: &[u8]) -> Option<LostCount> {
        let (sum, rest) = bytes.get(..LOST_LEN)?.split_at(SUM_LEN);
        if digest(rest)[..SUM_LEN] != *sum {
            return None;
        }
        let mut numbers =
            rest.chunks_exact(8).map(|number| number.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next().unwrap_or(0);
        let (next_seq, unnumbered, since_ns) = (next(), next(), next());
        let count = next().min(GAPS_MAX as u64);
        let gaps = (0..count).map(|_| (next(), next())).collect();
        let report_seq = rest.last_chunk().map_or(0, |report_seq| u64::from_le_bytes(*report_seq));
        Some(LostCount { next_seq, unnumbered, since_ns, gaps, report_seq })
    }
}

pub(super) fn read(directory: &Path) -> Option<LostCount> {
    LostCount::decode(&std::fs::read(directory.join(LOST_COUNT_FILE)).ok()?)
}

pub(super) fn is_complete(directory: &Path) -> bool {
    std::fs::metadata(directory.join(LOST_COUNT_FILE))
        .is_ok_and(|file| file.len() == LOST_LEN as u64)
}

pub(super) fn reset(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    let path = directory.join(LOST_COUNT_FILE);
    let bytes = std::fs::read(&path).ok();
    if bytes
        .as_ref()
        .is_some_and(|bytes| bytes.len() == LOST_LEN && bytes.iter().all(|byte| *byte == 0))
    {
        return Ok(());
    }
    let file = if bytes.is_some() { disk.open(&path)? } else { disk.create(&path, false)? };
    file.write_at(&[0; LOST_LEN], 0)?;
    file.sync()?;
    if bytes.is_none() { disk.sync_dir(directory) } else { Ok(()) }
}

pub(super) fn write(disk: &dyn Disk, directory: &Path, lost: &LostCount) -> io::Result<()> {
    let file = disk.open(&directory.join(LOST_COUNT_FILE))?;
    file.write_at(&lost.encode(), 0)?;
    file.sync()
}

/// One disk sector, written atomically.
const LOST_LEN: usize = 512;
/// A prefix of SHA-256 over the rest.
const SUM_LEN: usize = 8;
const GAPS_MAX: usize = (LOST_LEN - SUM_LEN - 5 * 8) / 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_count_round_trips_and_never_shrinks() {
        let few = LostCount {
            next_seq: 100,
            unnumbered: 7,
            since_ns: 3,
            gaps: vec![(40, 5), (90, 11)],
            report_seq: 0,
        };
        assert_eq!(LostCount::decode(&few.encode()), Some(few.clone()));
        assert_eq!(
            (few.count(1), few.count(50), few.count(100), few.count(101)),
            (99 - 2 + 7 + 16, 50 - 1 + 7 + 11, 7, 7)
        );
        let report_seq = LostCount { report_seq: 60, ..few.clone() };
        assert_eq!(LostCount::decode(&report_seq.encode()), Some(report_seq.clone()));
        assert_eq!((report_seq.count(60), report_seq.count(61)), (few.count(60), 0));
        let many = LostCount {
            next_seq: 1100,
            gaps: (1..=100).map(|number| (number * 10, 1000)).collect(),
            ..few
        };
        let read = LostCount::decode(&many.encode()).unwrap();
        assert_eq!(read.gaps.len(), GAPS_MAX);
        let all = many.count(1);
        for resumed in 1..=many.next_seq {
            let count = many.count(resumed);
            assert!(
                (count..=all + 100).contains(&read.count(resumed)),
                "{resumed}: {} of {count}",
                read.count(resumed)
            );
            if resumed <= 10 * GAPS_MAX as u64 - 9 {
                assert!(read.count(resumed) <= count + 100, "{resumed}");
            }
        }
        for bytes in [&[][..], &[0; LOST_LEN], &[1; LOST_LEN]] {
            assert_eq!(LostCount::decode(bytes), None);
        }
    }
}
