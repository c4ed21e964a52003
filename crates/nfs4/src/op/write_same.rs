//! WRITE_SAME (RFC 7862, section 15.12).

use super::StableHow;
use super::read::IO_LEN_MAX;
use crate::macros::wire_struct;
use crate::{Bytes, Stateid};

wire_struct! {
    /// Pattern and its placement (`app_data_block4`).
    #[derive(Copy)]
    pub struct AppDataBlock<'a> {
        /// Offset of the first byte.
        pub offset: u64,
        /// Length of a block.
        pub block_size: u64,
        /// How many blocks.
        pub block_count: u64,
        /// Offset of the block number in each block.
        pub number_offset: u64,
        /// Number of the first block.
        pub number: u32,
        /// Offset of the pattern in each block.
        pub pattern_offset: u64,
        /// The pattern.
        pub pattern: Bytes<'a, IO_LEN_MAX>,
    }
}

wire_struct! {
    /// `WRITE_SAME4args`.
    #[derive(Copy)]
    pub struct WriteSameArgs<'a> {
        /// Stateid of an open for writing.
        pub stateid: Stateid,
        /// Required stability.
        pub stable: StableHow,
        /// Pattern and its placement.
        pub block: AppDataBlock<'a>,
    }
}
