//! Stateids and the special ones (RFC 8881, section 8.2.3; RFC 7530, section 9.1.4.3).

use crate::StateSeq;
use crate::macros::wire_struct;

wire_struct! {
    /// Names an open, a lock, a delegation or a copy, and how often it has changed (`stateid4`).
    #[derive(Copy, Default, Hash)]
    pub struct Stateid {
        /// Counts the changes; zero means the newest (4.1).
        pub seq: StateSeq,
        /// Names the state.
        pub other: [u8; 12],
    }
}

impl Stateid {
    /// All zeros: no state.
    pub const ANONYMOUS: Self = Self { seq: StateSeq(0), other: [0; 12] };
    /// All ones: a READ that passes locks.
    pub const READ_BYPASS: Self = Self { seq: StateSeq(u32::MAX), other: [0xff; 12] };
    /// The compound's current stateid (4.1).
    pub const CURRENT: Self = Self { seq: StateSeq(1), other: [0; 12] };
    /// Never valid (4.1).
    pub const INVALID: Self = Self { seq: StateSeq(u32::MAX), other: [0; 12] };

    /// Whether `other` is all zeros or all ones, which no state's may be.
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}
