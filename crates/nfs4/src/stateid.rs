//! Stateids and special stateids (RFC 8881, section 8.2.3; RFC 7530, section 9.1.4.3).

use crate::StateSeq;
use crate::macros::wire_struct;

wire_struct! {
    /// Identifies a version of an open, a lock, a delegation or a copy (`stateid4`).
    #[derive(Copy, Default, Hash)]
    pub struct Stateid {
        /// Counts the changes of the state; zero means the newest version (4.1).
        pub seq: StateSeq,
        pub other: [u8; 12],
    }
}

impl Stateid {
    pub const ANONYMOUS: Self = Self { seq: StateSeq(0), other: [0; 12] };
    /// The READ bypass stateid, all ones: the READ ignores locks.
    pub const READ_BYPASS: Self = Self { seq: StateSeq(u32::MAX), other: [0xff; 12] };
    pub const CURRENT: Self = Self { seq: StateSeq(1), other: [0; 12] };
    pub const INVALID: Self = Self { seq: StateSeq(u32::MAX), other: [0; 12] };

    /// Returns whether `other` is all zeros or all ones, which only special stateids use.
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}
