use vouch_nfs4::{SlotId, SlotSeq};

use crate::CallbackTo;
use crate::state::effect::CallbackOp;
use crate::state::id::{ClientKey, SessionKey, StateKey};

#[derive(Clone, Copy, Debug, Default)]
pub(in crate::state) struct BackSlot {
    pub(in crate::state) seq: SlotSeq,
    pub(in crate::state) busy: bool,
    /// The last callback was lost, but the client may have seen it.
    pub(in crate::state) in_doubt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Subject {
    Recall(StateKey),
    Getattr(StateKey),
    Copy(StateKey),
    Probe,
    Nothing,
}

pub(in crate::state) struct Callback {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) op: CallbackOp,
    pub(in crate::state) subject: Subject,
    pub(in crate::state) tries: u8,
    pub(in crate::state) sent: Option<Sent>,
}

#[derive(Clone, Copy)]
pub(in crate::state) struct Sent {
    pub(in crate::state) session: Option<(SessionKey, SlotId)>,
    pub(in crate::state) to: CallbackTo,
}

impl crate::state::session::record::Session {
    pub(in crate::state) fn has_back_path(&self) -> bool {
        !self.fault
            && self.back_slots_max > 0
            && self.has_context()
            && self.connections.iter().any(|bound| bound.back)
    }

    pub(in crate::state) fn has_context(&self) -> bool {
        self.back.life.as_ref().is_none_or(|life| life.left_ms() > 0)
    }

    pub(in crate::state) fn take_back_slot(&mut self) -> Option<(SlotId, SlotSeq, SlotId)> {
        let at =
            self.back_slots.iter().position(|slot| !slot.busy).unwrap_or(self.back_slots.len());
        if at >= self.back_slots_max as usize {
            return None;
        }
        if at == self.back_slots.len() {
            self.back_slots.push(BackSlot::default());
        }
        let slot = &mut self.back_slots[at];
        slot.busy = true;
        slot.seq = slot.seq.next();
        let seq = slot.seq;
        let highest =
            self.back_slots.iter().rposition(|slot| slot.busy).expect("an entry was just taken");
        Some((SlotId(at as u32), seq, SlotId(highest as u32)))
    }
}
