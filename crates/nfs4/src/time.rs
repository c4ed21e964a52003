//! Times as the protocol carries them. Reads no clock.

use crate::macros::{wire_struct, wire_union};

wire_struct! {
    /// A time since the Epoch, or a length of time (`nfstime4`). Whether the nanoseconds are in range is for the user of it to check.
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct Time {
        /// Whole seconds, negative before the Epoch.
        pub seconds: i64,
        /// Nanoseconds after that, below a thousand million if valid.
        pub nanoseconds: u32,
    }
}

impl Time {
    /// Whether the nanoseconds are below a second (RFC 8881, section 3.3.1: otherwise INVAL).
    pub const fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }
}

wire_union! {
    /// What to set a time to (`settime4`).
    #[derive(Copy)]
    pub enum SetTime = "settime4" {
        /// The server's time.
        0 => Server,
        /// The time given.
        1 => Client(time: Time),
    }
}
