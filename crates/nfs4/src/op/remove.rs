//! REMOVE (RFC 8881, section 18.25).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    /// `REMOVE4args`.
    #[derive(Copy)]
    pub struct RemoveArgs<'a> {
        /// The entry of the current directory.
        pub name: Name<'a>,
    }
}

wire_struct! {
    /// `REMOVE4resok`.
    #[derive(Copy)]
    pub struct RemoveOk {
        /// What it did to the directory.
        pub change: ChangeInfo,
    }
}
