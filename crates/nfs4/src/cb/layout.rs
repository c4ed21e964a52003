//! CB_LAYOUTRECALL (RFC 8881, section 20.3).

use crate::macros::{wire_struct, wire_union};
use crate::op::LayoutIoMode;
use crate::{Filehandle, Fsid, Stateid};

wire_struct! {
    /// A range of a file (`layoutrecall_file4`).
    #[derive(Copy)]
    pub struct LayoutRecallFile {
        /// The file.
        pub handle: Filehandle,
        /// Offset of the first byte.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Stateid of the layout.
        pub stateid: Stateid,
    }
}

wire_union! {
    /// Layouts to recall (`layoutrecall4`).
    #[derive(Copy)]
    pub enum LayoutRecall = "layoutrecall_type4" {
        /// Layouts of one file.
        1 => File(file: LayoutRecallFile),
        /// Layouts of one file system.
        2 => Fsid(fsid: Fsid),
        /// All layouts of the client.
        3 => All,
    }
}

wire_struct! {
    /// `CB_LAYOUTRECALL4args`.
    #[derive(Copy)]
    pub struct CbLayoutrecallArgs {
        /// Layout type.
        pub kind: u32,
        /// I/O mode of the layouts.
        pub iomode: LayoutIoMode,
        /// Whether the layout has changed.
        pub changed: bool,
        /// Layouts to recall.
        pub recall: LayoutRecall,
    }
}
