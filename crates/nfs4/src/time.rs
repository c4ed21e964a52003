//! Times on the wire.

use crate::macros::{wire_struct, wire_union};

wire_struct! {
    /// A time since the Epoch, or a duration (`nfstime4`). The decoder does not check the
    /// nanoseconds.
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct Time {
        /// Whole seconds; negative before the Epoch.
        pub seconds: i64,
        /// Nanoseconds after `seconds`; a valid value is below 1,000,000,000.
        pub nanoseconds: u32,
    }
}

impl Time {
    /// Returns whether the nanoseconds are below one second (RFC 8881, section 3.3.1: otherwise
    /// INVAL).
    pub const fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }
}

wire_union! {
    #[derive(Copy)]
    pub enum SetTime = "settime4" {
        0 => Server,
        1 => Client(time: Time),
    }
}
