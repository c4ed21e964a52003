//! REMOVE (RFC 8881 §18.25).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    #[derive(Copy)]
    pub struct RemoveArgs<'a> {
        pub name: Name<'a>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct RemoveOk {
        pub change: ChangeInfo,
    }
}
