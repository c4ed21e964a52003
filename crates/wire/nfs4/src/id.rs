use crate::macros::{wire_newtype, wire_struct};

wire_newtype! {
    pub struct ClientId(pub u64);

    pub struct SessionId(pub [u8; 16]);

    pub struct SlotId(pub u32);

    pub struct SlotSeq(pub u32);

    pub struct CreateSeq(pub u32);

    pub struct StateSeq(pub u32);

    /// `seqid4` in arguments, 4.0 only. A 4.1 client sends 0.
    pub struct OwnerSeq(pub u32);

    /// `verifier4`: identifies one instance of a client or server, or one attempt.
    pub struct Verifier(pub [u8; 8]);

    /// `changeid4`: differs after every change.
    pub struct ChangeId(pub u64);

    /// `nfs_cookie4`.
    pub struct Cookie(pub u64);

    pub struct DeviceId(pub [u8; 16]);
}

impl SlotSeq {
    /// Wraps (RFC 8881 §2.10.6.1).
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl CreateSeq {
    /// Wraps.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl OwnerSeq {
    /// Wraps (RFC 7530 §9.1.7).
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl StateSeq {
    /// Wraps to one, because zero means the newest stateid in 4.1 (RFC 8881 §8.2.2).
    pub const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}

wire_struct! {
    #[derive(Copy, Default)]
    pub struct ChangeInfo {
        /// No other change can have happened between `before` and `after`.
        pub atomic: bool,
        pub before: ChangeId,
        pub after: ChangeId,
    }

    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct Fsid { pub major: u64, pub minor: u64 }
}
