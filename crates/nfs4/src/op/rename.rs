//! RENAME (RFC 8881, section 18.26).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    /// `RENAME4args`. The saved filehandle is the source directory; the current filehandle is the
    /// target directory.
    #[derive(Copy)]
    pub struct RenameArgs<'a> {
        /// Name in the source directory.
        pub old: Name<'a>,
        /// Name in the target directory.
        pub new: Name<'a>,
    }
}

wire_struct! {
    /// `RENAME4resok`.
    #[derive(Copy)]
    pub struct RenameOk {
        /// Change of the source directory.
        pub source: ChangeInfo,
        /// Change of the target directory.
        pub target: ChangeInfo,
    }
}
