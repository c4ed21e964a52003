//! What the disk did not take, kept in a file that was made when there was room and is written over
//! in place, so that a disk that is full takes it: told at the next start.

use std::io;
use std::path::Path;

use crate::chain::digest;
use crate::trail::Disk;

/// Name of the file, in the trail's directory.
pub const LOST: &str = "lost";

/// Records that are in no segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Those from where the trail ends to this one, which none has.
    pub next_seq: u64,
    /// And these, which had no number yet.
    pub more: u64,
    /// When the disk took the last ones, nanoseconds since 1970.
    pub since_ns: u64,
    /// Gaps among those that had a number: it, and how many records each stands for.
    pub gaps: Vec<(u64, u64)>,
    /// The record that tells all this, once the trail goes on with it; 0: none.
    pub told: u64,
}

impl Lost {
    /// How many of a trail that goes on with this record: none if they were told before it.
    pub fn count(&self, next_seq: u64) -> u64 {
        if self.told > 0 && next_seq > self.told {
            return 0;
        }
        let gaps = self.gaps.iter().filter(|(seq, _)| *seq >= next_seq);
        // A gap's record stands for others, and is none of them.
        let (records, stands_for) = gaps.fold((0, 0u64), |(records, sum), (_, count)| (records + 1, sum.saturating_add(*count)));
        self.next_seq.saturating_sub(next_seq).saturating_sub(records).saturating_add(self.more).saturating_add(stands_for)
    }

    /// As the file has it.
    pub fn encode(&self) -> [u8; LOST_LEN] {
        let mut gaps = self.gaps.clone();
        while gaps.len() > GAPS_MAX {
            // The newest are put together under the number of the last: both are lost, or the older one may not
            // be, and then too many are told.
            let (seq, count) = gaps.pop().unwrap_or_default();
            if let Some(last) = gaps.last_mut() {
                *last = (seq, last.1.saturating_add(count));
            }
        }
        let mut bytes = [0; LOST_LEN];
        let numbers = [self.next_seq, self.more, self.since_ns, gaps.len() as u64];
        let numbers = numbers.into_iter().chain(gaps.into_iter().flat_map(|(seq, count)| [seq, count]));
        for (at, number) in numbers.enumerate() {
            bytes[SUM_LEN + at * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[LOST_LEN - 8..].copy_from_slice(&self.told.to_le_bytes());
        let sum = digest(&bytes[SUM_LEN..]);
        bytes[..SUM_LEN].copy_from_slice(&sum[..SUM_LEN]);
        bytes
    }

    /// None of what is no such file, is damaged, or tells of nothing.
    pub fn decode(bytes: &[u8]) -> Option<Lost> {
        let (sum, rest) = bytes.get(..LOST_LEN)?.split_at(SUM_LEN);
        if digest(rest)[..SUM_LEN] != *sum {
            return None;
        }
        let mut numbers = rest.chunks_exact(8).map(|number| number.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next().unwrap_or(0);
        let (next_seq, more, since_ns) = (next(), next(), next());
        let count = next().min(GAPS_MAX as u64);
        let gaps = (0..count).map(|_| (next(), next())).collect();
        let told = rest.last_chunk().map_or(0, |told| u64::from_le_bytes(*told));
        Some(Lost { next_seq, more, since_ns, gaps, told })
    }
}

/// What was lost at the last end; none if nothing is known of any.
pub(super) fn read(directory: &Path) -> Option<Lost> {
    Lost::decode(&std::fs::read(directory.join(LOST)).ok()?)
}

/// Whether the file is there as a whole: a disk without room leaves a part of it.
pub(super) fn is_made(directory: &Path) -> bool {
    std::fs::metadata(directory.join(LOST)).is_ok_and(|file| file.len() == LOST_LEN as u64)
}

/// Makes the file, or says in it that nothing is lost.
pub(super) fn reset(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    let path = directory.join(LOST);
    let bytes = std::fs::read(&path).ok();
    if bytes.as_ref().is_some_and(|bytes| bytes.len() == LOST_LEN && bytes.iter().all(|byte| *byte == 0)) {
        return Ok(());
    }
    let file = if bytes.is_some() { disk.open(&path)? } else { disk.create(&path, false)? };
    file.write_at(&[0; LOST_LEN], 0)?;
    file.sync()?;
    // What is written over in place must be found after a loss of power.
    if bytes.is_none() { disk.sync_dir(directory) } else { Ok(()) }
}

/// Writes it over what was there.
pub(super) fn keep(disk: &dyn Disk, directory: &Path, lost: &Lost) -> io::Result<()> {
    let file = disk.open(&directory.join(LOST))?;
    file.write_at(&lost.encode(), 0)?;
    file.sync()
}

/// A sector, which is written whole or not.
const LOST_LEN: usize = 512;
/// Bytes of SHA-256 over the rest, before it.
const SUM_LEN: usize = 8;
/// Gaps that have room between the four numbers before them and the one at the end.
const GAPS_MAX: usize = (LOST_LEN - SUM_LEN - 5 * 8) / 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_read_back_and_never_less_however_many_gaps_there_were() {
        let few = Lost { next_seq: 100, more: 7, since_ns: 3, gaps: vec![(40, 5), (90, 11)], told: 0 };
        assert_eq!(Lost::decode(&few.encode()), Some(few.clone()));
        // All of them; those from 50 on, and one gap; those that had no number.
        assert_eq!((few.count(1), few.count(50), few.count(100), few.count(101)), (99 - 2 + 7 + 16, 50 - 1 + 7 + 11, 7, 7));
        // Once told, they are told if the record of that is not there.
        let told = Lost { told: 60, ..few.clone() };
        assert_eq!(Lost::decode(&told.encode()), Some(told.clone()));
        assert_eq!((told.count(60), told.count(61)), (few.count(60), 0));
        let many = Lost { next_seq: 1100, gaps: (1..=100).map(|number| (number * 10, 1000)).collect(), ..few };
        let read = Lost::decode(&many.encode()).unwrap();
        assert_eq!(read.gaps.len(), GAPS_MAX);
        let all = many.count(1);
        for resumed in 1..=many.next_seq {
            let count = many.count(resumed);
            // A record more for each gap that another stands for; and where it goes on among those, these as
            // well.
            assert!((count..=all + 100).contains(&read.count(resumed)), "{resumed}: {} of {count}", read.count(resumed));
            if resumed <= 10 * GAPS_MAX as u64 - 9 {
                assert!(read.count(resumed) <= count + 100, "{resumed}");
            }
        }
        for bytes in [&[][..], &[0; LOST_LEN], &[1; LOST_LEN]] {
            assert_eq!(Lost::decode(bytes), None);
        }
    }
}
