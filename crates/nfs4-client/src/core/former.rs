//! The end of contexts: that of the calls, and that of those before it. A server would keep the
//! keys of one that nobody ends until its ticket ends.

use super::{Core, Flight, PLACE_BITS, PLACES};
use crate::Protection;

/// What secured calls before.
pub(super) struct Former {
    protection: Box<dyn Protection>,
    /// Calls that it secured and that have no answer: one that is denied because their context was
    /// ended would be taken for one that the server has lost.
    in_flight: usize,
}

impl Core {
    /// Secures calls by another context from now on. Replies to calls that went before can't be
    /// opened any more: hand it in when they have come, or are lost.
    pub fn set_protection(&mut self, protection: Box<dyn Protection>) {
        let protection = std::mem::replace(&mut self.protection, protection);
        self.life = self.life.wrapping_add(1);
        self.former = Some(Former { protection, in_flight: self.in_flight });
    }

    /// A call has its answer, is lost, or goes again.
    pub(super) fn landed(&mut self, flight: &Flight) {
        if flight.life != self.life
            && let Some(former) = &mut self.former
        {
            former.in_flight -= 1;
        }
    }

    /// The call that ends the context before this one, once when nothing waits for an answer under
    /// it. Its own answer is to no call that is waited for.
    pub(crate) fn end_former(&mut self) -> Option<Vec<u8>> {
        let mut former = self.former.take_if(|former| former.in_flight == 0)?;
        let xid = self.xid_of_farewell();
        former.protection.farewell(xid)
    }

    /// The call that ends the context, and its transaction. No other call is to follow.
    pub(crate) fn farewell(&mut self) -> Option<(u32, Vec<u8>)> {
        let xid = self.xid_of_farewell();
        self.protection.farewell(xid).map(|record| (xid, record))
    }

    /// No call in flight has it.
    fn xid_of_farewell(&mut self) -> u32 {
        self.xid_high = self.xid_high.wrapping_add(1);
        self.xid_high << PLACE_BITS | (PLACES - 1) as u32
    }
}
