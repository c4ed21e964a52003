//! REMOVE (RFC 8881, section 18.25).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    /// `REMOVE4args`.
    #[derive(Copy)]
    pub struct RemoveArgs<'a> {
        /// Name of the entry in the current directory.
        pub name: Name<'a>,
    }
}

wire_struct! {
    /// `REMOVE4resok`.
    #[derive(Copy)]
    pub struct RemoveOk {
        /// Change of the directory.
        pub change: ChangeInfo,
    }
}
