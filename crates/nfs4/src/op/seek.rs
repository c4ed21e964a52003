//! SEEK (RFC 7862, section 15.11).

use super::DataContent;
use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct SeekArgs {
        /// Stateid of the open.
        pub stateid: Stateid,
        /// Offset at which the search starts.
        pub offset: u64,
        /// Content to find.
        pub what: DataContent,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct SeekOk {
        pub eof: bool,
        pub offset: u64,
    }
}
