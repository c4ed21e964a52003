//! WRITE_SAME (RFC 7862 §15.12).

use super::StableHow;
use crate::macros::wire_struct;
use crate::wire::IO_LEN_MAX;
use crate::{Bytes, Stateid};

wire_struct! {
    #[derive(Copy)]
    pub struct AppDataBlock<'a> {
        pub offset: u64,
        pub block_size: u64,
        pub block_count: u64,
        pub number_offset: u64,
        pub number: u32,
        pub pattern_offset: u64,
        pub pattern: Bytes<'a, IO_LEN_MAX>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct WriteSameArgs<'a> {
        pub stateid: Stateid,
        pub stable: StableHow,
        pub block: AppDataBlock<'a>,
    }
}
