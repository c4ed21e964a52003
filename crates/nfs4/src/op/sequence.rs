//! SEQUENCE (RFC 8881, section 18.46).

use crate::macros::{wire_bits, wire_struct};
use crate::{SessionId, SlotId, SlotSeq};

wire_bits! {
    /// What the client should know.
    pub struct SequenceFlags {
        /// No connection carries callbacks.
        CB_PATH_DOWN = 1,
        /// GSS contexts for callbacks expire soon.
        CB_GSS_CONTEXTS_EXPIRING = 2,
        /// They have expired.
        CB_GSS_CONTEXTS_EXPIRED = 4,
        /// The lease expired and all state is gone.
        EXPIRED_ALL_STATE_REVOKED = 8,
        /// Some of it is gone.
        EXPIRED_SOME_STATE_REVOKED = 0x10,
        /// An administrator took state away.
        ADMIN_STATE_REVOKED = 0x20,
        /// What was not returned in time is gone.
        RECALLABLE_STATE_REVOKED = 0x40,
        /// Leases have moved.
        LEASE_MOVED = 0x80,
        /// The server has restarted: reclaim.
        RESTART_RECLAIM_NEEDED = 0x100,
        /// No connection carries this session's callbacks.
        CB_PATH_DOWN_SESSION = 0x200,
        /// Callbacks of this session are in trouble.
        BACKCHANNEL_FAULT = 0x400,
        /// A device has changed.
        DEVID_CHANGED = 0x800,
        /// A device is gone.
        DEVID_DELETED = 0x1000,
    }
}

wire_struct! {
    /// `SEQUENCE4args`.
    #[derive(Copy)]
    pub struct SequenceArgs {
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
    }
}

wire_struct! {
    /// `SEQUENCE4resok`.
    #[derive(Copy)]
    pub struct SequenceOk {
        /// The session.
        pub session: SessionId,
        /// The slot's number.
        pub seq: SlotSeq,
        /// The slot.
        pub slot: SlotId,
        /// The highest slot that the server takes now.
        pub highest_slot: SlotId,
        /// The highest that it would like to be used.
        pub target_highest_slot: SlotId,
        /// What the client should know.
        pub flags: SequenceFlags,
    }
}
