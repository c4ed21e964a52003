//! RENAME (RFC 8881, section 18.26).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    /// `RENAME4args`. The saved filehandle is the source directory, the current one the target.
    #[derive(Copy)]
    pub struct RenameArgs<'a> {
        /// The entry of the source directory.
        pub old: Name<'a>,
        /// Its name in the target directory.
        pub new: Name<'a>,
    }
}

wire_struct! {
    /// `RENAME4resok`.
    #[derive(Copy)]
    pub struct RenameOk {
        /// What it did to the source directory.
        pub source: ChangeInfo,
        /// And to the target.
        pub target: ChangeInfo,
    }
}
