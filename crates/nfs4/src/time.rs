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
    /// New value of a time attribute (`settime4`).
    #[derive(Copy)]
    pub enum SetTime = "settime4" {
        /// The server's current time.
        0 => Server,
        /// A time that the client chose.
        1 => Client(time: Time),
    }
}
