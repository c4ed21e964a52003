//! SEEK (RFC 7862 §15.11).

use crate::Stateid;
use crate::macros::{wire_enum, wire_struct};

wire_enum! {
    pub enum DataContent = "data_content4" {
        Data = 0,
        Hole = 1,
    }
}

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
