//! CB_LAYOUTRECALL (RFC 8881 §20.3).

use crate::macros::{wire_copy, wire_union};
use crate::op::LayoutIoMode;
use crate::{Filehandle, Fsid, Stateid};

wire_copy! {
    pub struct LayoutRecallFile {
        pub handle: Filehandle,
        pub offset: u64,
        pub length: u64,
        pub stateid: Stateid,
    }
}

wire_union! {
    #[derive(Copy)]
    pub enum LayoutRecall = "layoutrecall_type4" {
        1 => File(file: LayoutRecallFile),
        2 => Fsid(fsid: Fsid),
        3 => All,
    }
}

wire_copy! {
    pub struct CbLayoutrecallArgs {
        pub kind: u32,
        pub iomode: LayoutIoMode,
        pub changed: bool,
        pub recall: LayoutRecall,
    }
}
