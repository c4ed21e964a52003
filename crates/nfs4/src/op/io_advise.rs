//! IO_ADVISE (RFC 7862, section 15.5).

use crate::macros::wire_struct;
use crate::{Bitmap, Stateid};

/// Numbers of the bits in hints (`IO_ADVISE_type4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum IoAdvice {
    /// Nothing special.
    Normal = 0,
    /// In order.
    Sequential = 1,
    /// In reverse order.
    SequentialBackwards = 2,
    /// In no order.
    Random = 3,
    /// Soon.
    Willneed = 4,
    /// Perhaps soon.
    WillneedOpportunistic = 5,
    /// Not soon.
    Dontneed = 6,
    /// Once.
    Noreuse = 7,
    /// Reads.
    Read = 8,
    /// Writes.
    Write = 9,
    /// It is near.
    InitProximity = 10,
}

wire_struct! {
    /// `IO_ADVISE4args`.
    #[derive(Copy)]
    pub struct IoAdviseArgs {
        /// An open.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How many; zero is up to the end.
        pub count: u64,
        /// What is to come, as numbers of [`IoAdvice`].
        pub hints: Bitmap,
    }
}

wire_struct! {
    /// `IO_ADVISE4resok`.
    #[derive(Copy)]
    pub struct IoAdviseOk {
        /// What the server makes use of.
        pub hints: Bitmap,
    }
}
