//! ALLOCATE and DEALLOCATE (RFC 7862 §15.1 and 15.4).

use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct AllocateArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub length: u64,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct DeallocateArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub length: u64,
    }
}
