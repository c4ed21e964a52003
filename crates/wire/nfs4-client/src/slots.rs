//! Free slots and sequence numbers (RFC 8881 §2.10.6.1).

use vouch_nfs4::{SlotId, SlotSeq};

pub(crate) const SLOTS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Slots {
    seqs: Vec<SlotSeq>,
    /// Number of the last numbers that may be unused, because the replies were invalid.
    in_doubt: Vec<u32>,
    free: [u64; SLOTS_MAX / 64],
    limit: usize,
    in_use: usize,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        let count = count.clamp(1, SLOTS_MAX);
        let mut free = [0; SLOTS_MAX / 64];
        (0..count).for_each(|at| free[at / 64] |= 1 << (at % 64));
        let in_doubt = vec![0; count];
        Self { seqs: vec![SlotSeq(0); count], in_doubt, free, limit: count, in_use: 0 }
    }

    pub(crate) fn available(&self) -> usize {
        self.limit.saturating_sub(self.in_use)
    }

    /// The lowest, so that the highest slot in use stays low.
    pub(crate) fn acquire(&mut self) -> Option<(usize, SlotSeq)> {
        let word = self.free.iter().position(|&word| word != 0)?;
        let at = word * 64 + self.free[word].trailing_zeros() as usize;
        if at >= self.limit {
            return None;
        }
        self.free[word] &= self.free[word] - 1;
        self.in_use += 1;
        Some((at, self.seqs[at].next()))
    }

    /// The sequence number advances if the server executed the call.
    pub(crate) fn release(&mut self, at: usize, executed: bool) {
        if executed {
            self.seqs[at] = self.seqs[at].next();
            self.in_doubt[at] = 0;
        }
        self.free[at / 64] |= 1 << (at % 64);
        self.in_use -= 1;
    }

    /// After an invalid reply. A used number could get the reply of an earlier call, but a number
    /// too high gets SEQ_MISORDERED: so the number advances until [`Self::step_back`].
    pub(crate) fn release_in_doubt(&mut self, at: usize) {
        let in_doubt = self.in_doubt[at].saturating_add(1);
        self.release(at, true);
        self.in_doubt[at] = in_doubt;
    }

    /// The server expects a lower number. False if none is in doubt.
    pub(crate) fn step_back(&mut self, at: usize) -> bool {
        let is_in_doubt = self.in_doubt[at] > 0;
        if is_in_doubt {
            self.in_doubt[at] -= 1;
            self.seqs[at] = SlotSeq(self.seqs[at].0.wrapping_sub(1));
        }
        is_in_doubt
    }

    pub(crate) fn seq_in_flight(&self, at: usize) -> SlotSeq {
        self.seqs[at].next()
    }

    pub(crate) fn highest(&self) -> SlotId {
        let used = |word: usize| !self.free[word] & mask(self.seqs.len(), word);
        let word = (0..self.free.len()).rev().find(|&word| used(word) != 0);
        SlotId(word.map_or(0, |word| word as u32 * 64 + 63 - used(word).leading_zeros()))
    }

    pub(crate) fn set_target(&mut self, target: SlotId) {
        self.limit = (target.0 as usize).saturating_add(1).clamp(1, self.seqs.len());
    }
}

fn mask(count: usize, word: usize) -> u64 {
    match count.saturating_sub(word * 64) {
        0 => 0,
        n @ 1..64 => (1 << n) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquires_lowest_free_slot_and_advances_executed_sequence() {
        let mut slots = Slots::new(70);
        let acquired: Vec<_> = (0..70).map(|_| slots.acquire().unwrap().0).collect();
        assert_eq!(acquired, (0..70).collect::<Vec<_>>());
        assert_eq!((slots.acquire(), slots.highest()), (None, SlotId(69)));
        slots.release(3, true);
        slots.release(66, false);
        assert_eq!(slots.acquire(), Some((3, SlotSeq(2))));
        assert_eq!(slots.acquire(), Some((66, SlotSeq(1))));
    }

    #[test]
    fn target_slot_limits_slots_but_keeps_one() {
        let mut slots = Slots::new(8);
        slots.set_target(SlotId(1));
        assert_eq!(
            (slots.acquire().map(|s| s.0), slots.acquire().map(|s| s.0), slots.acquire()),
            (Some(0), Some(1), None)
        );
        slots.set_target(SlotId(u32::MAX));
        assert_eq!((slots.available(), slots.acquire().map(|s| s.0)), (6, Some(2)));
    }
}
