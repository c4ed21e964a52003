//! SEQUENCE (RFC 8881, section 18.46).

use crate::macros::{wire_bits, wire_struct};
use crate::{SessionId, SlotId, SlotSeq};

wire_bits! {
    /// Conditions that the server reports to the client.
    pub struct SequenceFlags {
        /// No connection carries callbacks.
        CB_PATH_DOWN = 1,
        /// GSS contexts for callbacks expire soon.
        CB_GSS_CONTEXTS_EXPIRING = 2,
        /// GSS contexts for callbacks have expired.
        CB_GSS_CONTEXTS_EXPIRED = 4,
        /// The lease expired and the server revoked all state.
        EXPIRED_ALL_STATE_REVOKED = 8,
        /// The lease expired and the server revoked some state.
        EXPIRED_SOME_STATE_REVOKED = 0x10,
        /// An administrator revoked state.
        ADMIN_STATE_REVOKED = 0x20,
        /// The server revoked state that the client did not return in time.
        RECALLABLE_STATE_REVOKED = 0x40,
        /// Leases moved to another server.
        LEASE_MOVED = 0x80,
        /// The server restarted; the client must reclaim its state.
        RESTART_RECLAIM_NEEDED = 0x100,
        /// No connection carries this session's callbacks.
        CB_PATH_DOWN_SESSION = 0x200,
        /// Callbacks of this session fail.
        BACKCHANNEL_FAULT = 0x400,
        /// A device has changed.
        DEVID_CHANGED = 0x800,
        /// A device was deleted.
        DEVID_DELETED = 0x1000,
    }
}

wire_struct! {
    /// `SEQUENCE4args`.
    #[derive(Copy)]
    pub struct SequenceArgs {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the slot.
        pub seq: SlotSeq,
        /// The slot.
        pub slot: SlotId,
        /// The highest slot in use.
        pub highest_slot: SlotId,
        /// Whether the server caches the reply.
        pub cache_this: bool,
    }
}

wire_struct! {
    /// `SEQUENCE4resok`.
    #[derive(Copy)]
    pub struct SequenceOk {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the slot.
        pub seq: SlotSeq,
        /// The slot.
        pub slot: SlotId,
        /// Highest slot that the server accepts now.
        pub highest_slot: SlotId,
        /// Highest slot that the server wants the client to use.
        pub target_highest_slot: SlotId,
        /// Conditions that the server reports.
        pub flags: SequenceFlags,
    }
}
