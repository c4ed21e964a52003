//! The end of contexts: that of the calls, and that of those before it. A server would keep the
//! keys of one that nobody ends until its ticket ends.

use super::{CALL_PLACE_BITS, CALL_PLACES, Core, InFlightCall};
use crate::Protection;

/// What secured calls before.
pub(super) struct PreviousContext {
    protection: Box<dyn Protection>,
    /// Calls that it secured and that have no answer: one that is denied because their context was
    /// ended would be taken for one that the server has lost.
    in_flight: usize,
}

impl Core {
    /// Secures calls by another context from now on. Replies to calls that went before can't be
    /// opened any more: hand it in when they have come, or are lost.
    pub(crate) fn set_protection(&mut self, protection: Box<dyn Protection>) {
        let protection = std::mem::replace(&mut self.protection, protection);
        self.context_generation = self.context_generation.wrapping_add(1);
        self.previous_context = Some(PreviousContext { protection, in_flight: self.in_flight });
    }

    /// A call has its answer, is lost, or goes again.
    pub(super) fn note_call_end(&mut self, call: &InFlightCall) {
        if call.context_generation != self.context_generation
            && let Some(previous_context) = &mut self.previous_context
        {
            previous_context.in_flight -= 1;
        }
    }

    /// The call that ends the context before this one, once when nothing waits for an answer under
    /// it. Its own answer is to no call that is waited for.
    pub(crate) fn destroy_previous_context(&mut self) -> Option<Vec<u8>> {
        let mut previous_context = self.previous_context.take_if(|previous_context| previous_context.in_flight == 0)?;
        let xid = self.next_reserved_xid();
        previous_context.protection.destroy_context(xid)
    }

    /// The call that ends the context, and its transaction. No other call is to follow.
    pub(crate) fn destroy_context(&mut self) -> Option<(u32, Vec<u8>)> {
        let xid = self.next_reserved_xid();
        self.protection.destroy_context(xid).map(|record| (xid, record))
    }

    /// No call in call has it.
    fn next_reserved_xid(&mut self) -> u32 {
        self.xid_high = self.xid_high.wrapping_add(1);
        self.xid_high << CALL_PLACE_BITS | (CALL_PLACES - 1) as u32
    }
}
