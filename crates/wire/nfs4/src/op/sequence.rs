//! SEQUENCE (RFC 8881 §18.46).

use crate::macros::{wire_bits, wire_copy};
use crate::{SessionId, SlotId, SlotSeq};

wire_bits! {
    pub struct SequenceFlags {
        CB_PATH_DOWN = 1,
        CB_GSS_CONTEXTS_EXPIRING = 2,
        CB_GSS_CONTEXTS_EXPIRED = 4,
        EXPIRED_ALL_STATE_REVOKED = 8,
        EXPIRED_SOME_STATE_REVOKED = 0x10,
        ADMIN_STATE_REVOKED = 0x20,
        /// The client did not return it in time.
        RECALLABLE_STATE_REVOKED = 0x40,
        LEASE_MOVED = 0x80,
        /// The client must reclaim its state.
        RESTART_RECLAIM_NEEDED = 0x100,
        CB_PATH_DOWN_SESSION = 0x200,
        BACKCHANNEL_FAULT = 0x400,
        DEVID_CHANGED = 0x800,
        DEVID_DELETED = 0x1000,
    }
}

wire_copy! {
    pub struct SequenceArgs {
        pub session: SessionId,
        pub seq: SlotSeq,
        pub slot: SlotId,
        pub highest_slot: SlotId,
        pub cache_this: bool,
    }

    pub struct SequenceOk {
        pub session: SessionId,
        pub seq: SlotSeq,
        pub slot: SlotId,
        pub highest_slot: SlotId,
        pub target_highest_slot: SlotId,
        pub flags: SequenceFlags,
    }
}
