//! LINK (RFC 8881 §18.9).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    /// The saved filehandle is the file.
    #[derive(Copy)]
    pub struct LinkArgs<'a> {
        pub name: Name<'a>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct LinkOk {
        pub change: ChangeInfo,
    }
}
