//! IO_ADVISE (RFC 7862 §15.5).

use crate::macros::wire_struct;
use crate::{Bitmap, Stateid};

/// `IO_ADVISE_type4`: bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum IoAdvice {
    Normal = 0,
    Sequential = 1,
    SequentialBackwards = 2,
    Random = 3,
    Willneed = 4,
    WillneedOpportunistic = 5,
    Dontneed = 6,
    Noreuse = 7,
    Read = 8,
    Write = 9,
    InitProximity = 10,
}

wire_struct! {
    #[derive(Copy)]
    pub struct IoAdviseArgs {
        pub stateid: Stateid,
        pub offset: u64,
        /// Zero means up to the end of the file.
        pub count: u64,
        pub hints: Bitmap,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct IoAdviseOk {
        pub hints: Bitmap,
    }
}
