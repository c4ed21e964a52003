//! ALLOCATE and DEALLOCATE (RFC 7862, sections 15.1 and 15.4).

use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    /// `ALLOCATE4args`.
    #[derive(Copy)]
    pub struct AllocateArgs {
        /// An open for writing.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How many bytes.
        pub length: u64,
    }
}

wire_struct! {
    /// `DEALLOCATE4args`.
    #[derive(Copy)]
    pub struct DeallocateArgs {
        /// An open for writing.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How many bytes.
        pub length: u64,
    }
}
