//! SEEK (RFC 7862, section 15.11).

use super::DataContent;
use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct SeekArgs {
        pub stateid: Stateid,
        pub offset: u64,
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
