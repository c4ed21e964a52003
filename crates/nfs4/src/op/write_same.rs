//! WRITE_SAME (RFC 7862, section 15.12).

use super::{IO_LEN_MAX, StableHow};
use crate::macros::wire_struct;
use crate::{Bytes, Stateid};

wire_struct! {
    /// A pattern and where it goes (`app_data_block4`).
    #[derive(Copy)]
    pub struct AppDataBlock<'a> {
        /// First byte.
        pub offset: u64,
        /// Length of a block.
        pub block_size: u64,
        /// How many blocks.
        pub block_count: u64,
        /// Where in a block its number stands.
        pub number_offset: u64,
        /// The first number.
        pub number: u32,
        /// Where in a block the pattern stands.
        pub pattern_offset: u64,
        /// The pattern.
        pub pattern: Bytes<'a, IO_LEN_MAX>,
    }
}

wire_struct! {
    /// `WRITE_SAME4args`.
    #[derive(Copy)]
    pub struct WriteSameArgs<'a> {
        /// An open for writing.
        pub stateid: Stateid,
        /// How durable it must be.
        pub stable: StableHow,
        /// What goes where.
        pub block: AppDataBlock<'a>,
    }
}
