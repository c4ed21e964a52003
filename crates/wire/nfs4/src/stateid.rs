//! RFC 8881 §8.2.3; RFC 7530 §9.1.4.3.

use crate::StateSeq;
use crate::macros::wire_struct;

wire_struct! {
    /// `stateid4`: a version of an open, a lock, a delegation or a copy.
    #[derive(Copy, Default, Hash)]
    pub struct Stateid {
        /// Zero means the newest version (4.1).
        pub seq: StateSeq,
        pub other: [u8; 12],
    }
}

impl Stateid {
    pub const ANONYMOUS: Self = Self { seq: StateSeq(0), other: [0; 12] };
    /// All ones: the READ ignores locks.
    pub const READ_BYPASS: Self = Self { seq: StateSeq(u32::MAX), other: [0xff; 12] };
    pub const CURRENT: Self = Self { seq: StateSeq(1), other: [0; 12] };
    pub const INVALID: Self = Self { seq: StateSeq(u32::MAX), other: [0; 12] };

    /// `other` is all zeros or all ones.
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}
