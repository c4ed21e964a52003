//! Identifiers and small values, each under its own name.

use crate::macros::{wire_newtype, wire_struct};

wire_newtype! {
    /// A client as the server numbers it (`clientid4`).
    pub struct ClientId(pub u64);

    /// A session (`sessionid4`).
    pub struct SessionId(pub [u8; 16]);

    /// A slot of a session (`slotid4`).
    pub struct SlotId(pub u32);

    /// The sequence number of a slot (`sequenceid4` in SEQUENCE).
    pub struct SlotSeq(pub u32);

    /// The sequence number of EXCHANGE_ID and CREATE_SESSION (`sequenceid4`).
    pub struct CreateSeq(pub u32);

    /// The sequence number of a stateid (`seqid4` in `stateid4`).
    pub struct StateSeq(pub u32);

    /// The sequence number of an open or lock owner in 4.0 (`seqid4` in arguments); 4.1 sends 0 and ignores it.
    pub struct OwnerSeq(pub u32);

    /// Eight bytes that change when their maker restarts, or that name one attempt (`verifier4`).
    pub struct Verifier(pub [u8; 8]);

    /// A value that differs after every change of a file (`changeid4`).
    pub struct ChangeId(pub u64);

    /// A place in a directory or a list (`nfs_cookie4`).
    pub struct Cookie(pub u64);

    /// A device of a layout (`deviceid4`).
    pub struct DeviceId(pub [u8; 16]);
}

impl SlotSeq {
    /// The number after this one; it wraps (RFC 8881, section 2.10.6.1).
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl CreateSeq {
    /// The number after this one; it wraps.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl OwnerSeq {
    /// The number after this one; it wraps (RFC 7530, section 9.1.7).
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl StateSeq {
    /// The number after this one; it wraps past zero, which means "the newest" in 4.1 (RFC 8881,
    /// section 8.2.2).
    pub const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}

wire_struct! {
    /// What a change did to a directory (`change_info4`).
    #[derive(Copy, Default)]
    pub struct ChangeInfo {
        /// Whether nothing else can have happened between the two.
        pub atomic: bool,
        /// The directory's change attribute before.
        pub before: ChangeId,
        /// And after.
        pub after: ChangeId,
    }
}

wire_struct! {
    /// A file system (`fsid4`).
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct Fsid {
        /// Major part.
        pub major: u64,
        /// Minor part.
        pub minor: u64,
    }
}
