//! SEEK (RFC 7862, section 15.11).

use super::DataContent;
use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    /// `SEEK4args`.
    #[derive(Copy)]
    pub struct SeekArgs {
        /// An open.
        pub stateid: Stateid,
        /// From where.
        pub offset: u64,
        /// What to find.
        pub what: DataContent,
    }
}

wire_struct! {
    /// `seek_res4`.
    #[derive(Copy)]
    pub struct SeekOk {
        /// Whether it is at or past the end of the file.
        pub eof: bool,
        /// Where it is.
        pub offset: u64,
    }
}
