//! Each request is executed once, and retries get the cached reply (RFC 8881 §2.10.6).

use vouch_nfs4::{SlotId, SlotSeq, Status};
use vouch_vfs::mutant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unused,
    Busy,
    Cached,
    Uncached,
}

struct Slot {
    seq: SlotSeq,
    phase: Phase,
    fingerprint: u64,
    reply: Vec<u8>,
}

impl Slot {
    const fn new() -> Self {
        Slot { seq: SlotSeq(0), phase: Phase::Unused, fingerprint: 0, reply: Vec::new() }
    }
}

const REPLY_LEN_KEPT: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Turn {
    New,
    Again,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) enum SlotAnswer {
    New,
    Replay(Vec<u8>),
    Uncached,
}

pub(in crate::state) struct SlotTable {
    slots: Vec<Slot>,
    granted: u32,
    target: u32,
    held_len: usize,
    busy: usize,
}

impl SlotTable {
    pub(in crate::state) fn new(granted: u32) -> Self {
        SlotTable { slots: Vec::new(), granted, target: granted, held_len: 0, busy: 0 }
    }

    pub(in crate::state) fn highest(&self) -> SlotId {
        SlotId(self.granted - 1)
    }

    pub(in crate::state) fn target(&self) -> SlotId {
        SlotId(self.target - 1)
    }

    #[inline]
    pub(in crate::state) fn check_request(
        &self,
        slot: SlotId,
        seq: SlotSeq,
        highest: SlotId,
        fingerprint: u64,
    ) -> Result<Turn, Status> {
        // §18.46.3.
        if slot.0 >= self.granted {
            return Err(Status::BADSLOT);
        }
        if highest.0 >= self.granted {
            return Err(Status::BAD_HIGH_SLOT);
        }
        let place = self.slots.get(slot.0 as usize).unwrap_or(const { &Slot::new() });
        // §2.10.6.1.
        if seq == place.seq.next() {
            return if place.phase == Phase::Busy {
                Err(Status::SEQ_MISORDERED)
            } else {
                Ok(Turn::New)
            };
        }
        let forgotten = match place.phase {
            Phase::Busy => mutant("running-call-runs-again"),
            Phase::Cached => mutant("reply-cache-forgets"),
            Phase::Unused | Phase::Uncached => false,
        };
        if forgotten && seq == place.seq {
            return Ok(Turn::New);
        }
        match place.phase {
            _ if seq != place.seq => Err(Status::SEQ_MISORDERED),
            Phase::Unused => Err(Status::SEQ_MISORDERED),
            // §2.10.6.2.
            Phase::Busy => Err(Status::DELAY),
            // §2.10.6.1.3.1.
            _ if place.fingerprint != fingerprint => Err(Status::SEQ_FALSE_RETRY),
            Phase::Cached | Phase::Uncached => Ok(Turn::Again),
        }
    }

    #[inline]
    pub(in crate::state) fn begin(
        &mut self,
        slot: SlotId,
        seq: SlotSeq,
        highest: SlotId,
        fingerprint: u64,
    ) -> Result<SlotAnswer, Status> {
        let turn = self.check_request(slot, seq, highest, fingerprint)?;
        let grown = self.growth(slot);
        self.held_len += grown;
        self.slots.reserve_exact(grown / size_of::<Slot>());
        while self.slots.len() <= slot.0 as usize {
            self.slots.push(Slot::new());
        }
        let place = &mut self.slots[slot.0 as usize];
        let begun = match (turn, place.phase) {
            (Turn::New, _) => {
                (place.seq, place.phase, place.fingerprint) = (seq, Phase::Busy, fingerprint);
                self.busy += 1;
                SlotAnswer::New
            }
            (Turn::Again, Phase::Cached) => SlotAnswer::Replay(place.reply.clone()),
            (Turn::Again, _) => SlotAnswer::Uncached,
        };
        if self.target < self.granted {
            self.retire(highest);
        }
        Ok(begun)
    }

    #[inline]
    pub(in crate::state) fn finish(&mut self, slot: SlotId, seq: SlotSeq, reply: Option<&[u8]>) {
        let Some(place) = self
            .slots
            .get_mut(slot.0 as usize)
            .filter(|place| place.seq == seq && place.phase == Phase::Busy)
        else {
            return;
        };
        self.busy -= 1;
        let before = place.reply.capacity();
        place.reply.clear();
        place.phase = match reply {
            Some(reply) => {
                place.reply.shrink_to(reply.len().max(REPLY_LEN_KEPT));
                place.reply.reserve_exact(reply.len());
                place.reply.extend_from_slice(reply);
                Phase::Cached
            }
            None => Phase::Uncached,
        };
        self.held_len = self.held_len + place.reply.capacity() - before;
    }

    pub(in crate::state) fn grow(&mut self, granted: u32) {
        self.granted = self.granted.max(granted);
        self.target = self.granted;
    }

    /// Slots are removed when the client has acknowledged the target (§2.10.6.1).
    pub(in crate::state) fn shrink(&mut self, target: u32) {
        self.target = target.clamp(1, self.granted);
    }

    fn retire(&mut self, highest: SlotId) {
        let target = self.target as usize;
        if highest.0 < self.target
            && !self.slots.iter().skip(target).any(|slot| slot.phase == Phase::Busy)
        {
            self.granted = self.target;
            self.slots.truncate(target);
            self.slots.shrink_to_fit();
            self.held_len = self.cached_len() + self.slots.len() * size_of::<Slot>();
        }
    }

    #[inline]
    pub(in crate::state) fn growth(&self, slot: SlotId) -> usize {
        let wanted = if slot.0 < self.granted { slot.0 as usize + 1 } else { 0 };
        wanted.saturating_sub(self.slots.len()) * size_of::<Slot>()
    }

    pub(in crate::state) fn held_len(&self) -> usize {
        self.held_len
    }

    pub(in crate::state) fn cached_len(&self) -> usize {
        self.slots.iter().map(|slot| slot.reply.capacity()).sum()
    }

    pub(in crate::state) fn busy(&self) -> usize {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn begin(table: &mut SlotTable, slot: u32, seq: u32) -> Result<SlotAnswer, Status> {
        table.begin(SlotId(slot), SlotSeq(seq), SlotId(slot), 1)
    }

    #[test]
    fn replayed_slot_returns_cached_reply() {
        let mut table = SlotTable::new(4);
        assert_eq!(begin(&mut table, 0, 0), Err(Status::SEQ_MISORDERED));
        assert_eq!(begin(&mut table, 0, 1), Ok(SlotAnswer::New));
        assert_eq!(begin(&mut table, 0, 1), Err(Status::DELAY));
        assert_eq!(begin(&mut table, 0, 2), Err(Status::SEQ_MISORDERED));
        table.finish(SlotId(0), SlotSeq(1), Some(b"one"));
        assert_eq!(begin(&mut table, 0, 1), Ok(SlotAnswer::Replay(b"one".to_vec())));
        assert_eq!(begin(&mut table, 0, 3), Err(Status::SEQ_MISORDERED));
        assert_eq!(table.begin(SlotId(0), SlotSeq(1), SlotId(0), 2), Err(Status::SEQ_FALSE_RETRY));
        assert_eq!(begin(&mut table, 0, 2), Ok(SlotAnswer::New));
        table.finish(SlotId(0), SlotSeq(2), None);
        assert_eq!(begin(&mut table, 0, 2), Ok(SlotAnswer::Uncached));
        assert_eq!(begin(&mut table, 4, 1), Err(Status::BADSLOT));
        assert_eq!(table.begin(SlotId(0), SlotSeq(3), SlotId(4), 1), Err(Status::BAD_HIGH_SLOT));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut table = SlotTable::new(1);
        begin(&mut table, 0, 1).unwrap();
        table.finish(SlotId(0), SlotSeq(1), None);
        table.slots[0].seq = SlotSeq(u32::MAX);
        assert_eq!(begin(&mut table, 0, 0), Ok(SlotAnswer::New));
    }

    #[test]
    fn slots_are_removed_after_client_acknowledges() {
        let mut table = SlotTable::new(8);
        begin(&mut table, 7, 1).unwrap();
        table.shrink(2);
        begin(&mut table, 0, 1).unwrap();
        assert_eq!((table.highest(), table.target()), (SlotId(7), SlotId(1)));
        table.finish(SlotId(7), SlotSeq(1), None);
        begin(&mut table, 1, 1).unwrap();
        assert_eq!(table.highest(), SlotId(1));
        assert_eq!(begin(&mut table, 7, 2), Err(Status::BADSLOT));
    }

    proptest! {
        #[test]
        fn each_request_is_executed_once(steps in prop::collection::vec((0u32..3, 0u8..4), 1..200)) {
            let mut table = SlotTable::new(3);
            let mut next = [1u32; 3];
            let mut executed = std::collections::HashMap::new();
            for (slot, action) in steps {
                let at = slot as usize;
                let seq = next[at];
                match action {
                    0 | 1 if begin(&mut table, slot, seq) == Ok(SlotAnswer::New) => {
                            *executed.entry((slot, seq)).or_insert(0) += 1;
                            if action == 0 {
                                table.finish(SlotId(slot), SlotSeq(seq), Some(&seq.to_be_bytes()));
                                next[at] += 1;
                            }
                    }
                    0 | 1 => {}
                    2 => {
                        let before = table.busy();
                        table.finish(SlotId(slot), SlotSeq(seq), Some(&seq.to_be_bytes()));
                        next[at] += (before - table.busy()) as u32;
                    }
                    _ if seq > 1 => {
                        let retry = begin(&mut table, slot, seq - 1);
                        let expected = match executed.contains_key(&(slot, seq)) {
                            true => Err(Status::SEQ_MISORDERED),
                            false => Ok(SlotAnswer::Replay((seq - 1).to_be_bytes().to_vec())),
                        };
                        prop_assert_eq!(retry, expected);
                    }
                    _ => {}
                }
            }
            prop_assert!(executed.values().all(|&count| count == 1));
            prop_assert_eq!(table.busy(), table.slots.iter().filter(|slot| slot.phase == Phase::Busy).count());
        }
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    #[derive(Clone, Copy)]
    enum Step {
        /// Slot, distance from the newest sequence number, fingerprint.
        Begin(u32, u32, u64),
        /// Slot, and whether the reply is kept.
        Finish(u32, bool),
    }

    /// Of one slot by RFC 8881 §2.10.6: the newest request, its fingerprint, and its reply.
    #[derive(Clone)]
    struct Model {
        seq: u32,
        fingerprint: u64,
        /// `None` before the first request.
        reply: Option<SlotReply>,
    }

    #[derive(Clone, PartialEq)]
    enum SlotReply {
        Executing,
        Kept(Vec<u8>),
        NotKept,
    }

    impl Model {
        fn begin(&mut self, seq: u32, fingerprint: u64) -> Result<SlotAnswer, Status> {
            let is_next = seq == self.seq.wrapping_add(1);
            match &self.reply {
                Some(SlotReply::Executing) if seq == self.seq => Err(Status::DELAY),
                Some(SlotReply::Executing) => Err(Status::SEQ_MISORDERED),
                _ if is_next => {
                    (self.seq, self.fingerprint) = (seq, fingerprint);
                    self.reply = Some(SlotReply::Executing);
                    Ok(SlotAnswer::New)
                }
                Some(_) if seq == self.seq && fingerprint != self.fingerprint => {
                    Err(Status::SEQ_FALSE_RETRY)
                }
                Some(SlotReply::Kept(reply)) if seq == self.seq => {
                    Ok(SlotAnswer::Replay(reply.clone()))
                }
                Some(SlotReply::NotKept) if seq == self.seq => Ok(SlotAnswer::Uncached),
                _ => Err(Status::SEQ_MISORDERED),
            }
        }
    }

    /// All orders of requests, retries, false retries and ends on two slots, also where the numbers
    /// wrap: each request is executed once, and a retry gets the reply of its execution.
    #[test]
    fn exhaustive_orders_execute_each_request_once() {
        let mut steps = Vec::new();
        for slot in 0..2 {
            for distance in [0, 1, 2, u32::MAX] {
                steps.push(Step::Begin(slot, distance, 1));
            }
            steps.push(Step::Begin(slot, 0, 2));
            steps.extend([Step::Finish(slot, true), Step::Finish(slot, false)]);
        }
        let depth = bound(4, 6) as u32;
        for (start, number) in [0, u32::MAX - 1]
            .into_iter()
            .flat_map(|start| (0..steps.len().pow(depth)).map(move |number| (start, number)))
        {
            let mut table = SlotTable::new(2);
            let mut model = [(); 2].map(|()| Model {
                seq: start,
                fingerprint: 0,
                reply: (start != 0).then_some(SlotReply::NotKept),
            });
            if start != 0 {
                for slot in 0..2 {
                    begin(&mut table, slot, 1).unwrap();
                    table.finish(SlotId(slot), SlotSeq(1), None);
                    let slot = &mut table.slots[slot as usize];
                    (slot.seq, slot.fingerprint) = (SlotSeq(start), 0);
                }
            }
            for at in 0..depth {
                match steps[number / steps.len().pow(at) % steps.len()] {
                    Step::Begin(slot, distance, fingerprint) => {
                        let model = &mut model[slot as usize];
                        let seq = model.seq.wrapping_add(distance);
                        let found = table.begin(SlotId(slot), SlotSeq(seq), SlotId(1), fingerprint);
                        assert_eq!(found, model.begin(seq, fingerprint), "{start} {number} {at}");
                    }
                    Step::Finish(slot, is_kept) => {
                        let model = &mut model[slot as usize];
                        let reply = [slot as u8, at as u8];
                        let kept = is_kept.then_some(&reply[..]);
                        table.finish(SlotId(slot), SlotSeq(model.seq), kept);
                        if model.reply == Some(SlotReply::Executing) {
                            model.reply = Some(match kept {
                                Some(reply) => SlotReply::Kept(reply.to_vec()),
                                None => SlotReply::NotKept,
                            });
                        }
                    }
                }
            }
        }
    }
}
