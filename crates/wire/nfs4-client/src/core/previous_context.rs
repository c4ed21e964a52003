//! Without destruction the server would keep the keys until the ticket expires.

use super::{CALL_PLACE_BITS, CALL_PLACES, Core, InFlightCall};
use crate::Protection;

pub(super) struct PreviousContext {
    protection: Box<dyn Protection>,
    in_flight: usize,
}

impl Core {
    /// Replies to earlier calls can no longer be opened.
    pub(crate) fn set_protection(&mut self, protection: Box<dyn Protection>) {
        let protection = std::mem::replace(&mut self.protection, protection);
        self.context_generation = self.context_generation.wrapping_add(1);
        self.previous_context = Some(PreviousContext { protection, in_flight: self.in_flight });
    }

    pub(super) fn note_call_end(&mut self, call: &InFlightCall) {
        if call.context_generation != self.context_generation
            && let Some(previous_context) = &mut self.previous_context
        {
            previous_context.in_flight -= 1;
        }
    }

    /// Returns the call once, after the last call under the previous context.
    pub(crate) fn destroy_previous_context(&mut self) -> Option<Vec<u8>> {
        let mut previous_context =
            self.previous_context.take_if(|previous_context| previous_context.in_flight == 0)?;
        let xid = self.next_reserved_xid();
        previous_context.protection.destroy_context(xid)
    }

    /// Returns the call with its transaction id. No call may follow.
    pub(crate) fn destroy_context(&mut self) -> Option<(u32, Vec<u8>)> {
        let xid = self.next_reserved_xid();
        self.protection.destroy_context(xid).map(|record| (xid, record))
    }

    fn next_reserved_xid(&mut self) -> u32 {
        self.xid_high = self.xid_high.wrapping_add(1);
        self.xid_high << CALL_PLACE_BITS | (CALL_PLACES - 1) as u32
    }
}
