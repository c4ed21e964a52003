//! CB_SEQUENCE (RFC 8881 §20.9).

use crate::macros::{wire_copy, wire_struct};
use crate::{List, SessionId, SlotId, SlotSeq};

/// Sessions, and calls of each session, that a callback refers to.
pub(crate) const REFERRING_CALLS_MAX: usize = 1024;

wire_copy! {
    pub struct ReferringCall { pub seq: SlotSeq, pub slot: SlotId }
}

wire_struct! {
    pub struct ReferringCalls {
        pub session: SessionId,
        pub calls: List<ReferringCall, REFERRING_CALLS_MAX>,
    }

    pub struct CbSequenceArgs {
        pub session: SessionId,
        pub seq: SlotSeq,
        pub slot: SlotId,
        pub highest_slot: SlotId,
        pub cache_this: bool,
        pub referring: List<ReferringCalls, REFERRING_CALLS_MAX>,
    }
}

wire_copy! {
    pub struct CbSequenceOk {
        pub session: SessionId,
        pub seq: SlotSeq,
        pub slot: SlotId,
        pub highest_slot: SlotId,
        pub target_highest_slot: SlotId,
    }
}
