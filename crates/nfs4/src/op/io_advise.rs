//! IO_ADVISE (RFC 7862, section 15.5).

use crate::macros::wire_struct;
use crate::{Bitmap, Stateid};

/// Bit numbers of I/O hints (`IO_ADVISE_type4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum IoAdvice {
    /// No particular access pattern.
    Normal = 0,
    /// Sequential access.
    Sequential = 1,
    /// Sequential access in reverse order.
    SequentialBackwards = 2,
    /// Random access.
    Random = 3,
    /// The client will access the range soon.
    Willneed = 4,
    /// The client may access the range soon.
    WillneedOpportunistic = 5,
    /// The client will not access the range soon.
    Dontneed = 6,
    /// The client will access the range once.
    Noreuse = 7,
    /// The client will read the range.
    Read = 8,
    /// The client will write the range.
    Write = 9,
    /// The client is close to the server's storage.
    InitProximity = 10,
}

wire_struct! {
    /// `IO_ADVISE4args`.
    #[derive(Copy)]
    pub struct IoAdviseArgs {
        /// Stateid of the open.
        pub stateid: Stateid,
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes; zero means up to the end of the file.
        pub count: u64,
        /// Hints, as a set of [`IoAdvice`] numbers.
        pub hints: Bitmap,
    }
}

wire_struct! {
    /// `IO_ADVISE4resok`.
    #[derive(Copy)]
    pub struct IoAdviseOk {
        /// Hints that the server uses.
        pub hints: Bitmap,
    }
}
