//! CB_SEQUENCE (RFC 8881, section 20.9).

use crate::macros::wire_struct;
use crate::{List, SessionId, SlotId, SlotSeq};

/// Most sessions, and most calls of each, that a callback refers to: a session has no more slots in
/// use.
pub const REFERRING_CALLS_MAX: usize = 1024;

wire_struct! {
    /// A call that the callback is about (`referring_call4`).
    #[derive(Copy)]
    pub struct ReferringCall {
        /// The slot's number.
        pub seq: SlotSeq,
        /// The slot.
        pub slot: SlotId,
    }
}

wire_struct! {
    /// Those of one session (`referring_call_list4`).
    pub struct ReferringCalls {
        /// The session.
        pub session: SessionId,
        /// The calls.
        pub calls: List<ReferringCall, REFERRING_CALLS_MAX>,
    }
}

wire_struct! {
    /// `CB_SEQUENCE4args`.
    pub struct CbSequenceArgs {
        /// The session.
        pub session: SessionId,
        /// The slot's number.
        pub seq: SlotSeq,
        /// The slot.
        pub slot: SlotId,
        /// The highest slot in use.
        pub highest_slot: SlotId,
        /// Whether to keep the reply.
        pub cache_this: bool,
        /// Calls whose replies may not have come yet.
        pub referring: List<ReferringCalls, REFERRING_CALLS_MAX>,
    }
}

wire_struct! {
    /// `CB_SEQUENCE4resok`.
    #[derive(Copy)]
    pub struct CbSequenceOk {
        /// The session.
        pub session: SessionId,
        /// The slot's number.
        pub seq: SlotSeq,
        /// The slot.
        pub slot: SlotId,
        /// The highest slot that the client takes now.
        pub highest_slot: SlotId,
        /// The highest that it would like to be used.
        pub target_highest_slot: SlotId,
    }
}
