//! CB_LAYOUTRECALL (RFC 8881, section 20.3).

use crate::macros::{wire_struct, wire_union};
use crate::op::LayoutIoMode;
use crate::{Filehandle, Fsid, Stateid};

wire_struct! {
    /// A part of a file (`layoutrecall_file4`).
    #[derive(Copy)]
    pub struct LayoutRecallFile {
        /// The file.
        pub handle: Filehandle,
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// The layout.
        pub stateid: Stateid,
    }
}

wire_union! {
    /// What is recalled (`layoutrecall4`).
    #[derive(Copy)]
    pub enum LayoutRecall = "layoutrecall_type4" {
        /// The layouts of a file.
        1 => File(file: LayoutRecallFile),
        /// Those of a file system.
        2 => Fsid(fsid: Fsid),
        /// All.
        3 => All,
    }
}

wire_struct! {
    /// `CB_LAYOUTRECALL4args`.
    #[derive(Copy)]
    pub struct CbLayoutrecallArgs {
        /// The layout's type.
        pub kind: u32,
        /// What it is for.
        pub iomode: LayoutIoMode,
        /// Whether it has changed.
        pub changed: bool,
        /// What is recalled.
        pub recall: LayoutRecall,
    }
}
