use crate::macros::{wire_struct, wire_union};

wire_struct! {
    /// `nfstime4`: since the Epoch, or a duration. The decoder does not check the nanoseconds.
    #[derive(Copy, Default, Hash, PartialOrd, Ord)]
    pub struct Time {
        /// Negative before the Epoch.
        pub seconds: i64,
        /// A valid value is below 1,000,000,000.
        pub nanoseconds: u32,
    }
}

impl Time {
    /// Otherwise INVAL (RFC 8881 §3.3.1).
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
