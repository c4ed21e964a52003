//! RENAME (RFC 8881 §18.26).

use crate::macros::wire_struct;
use crate::{ChangeInfo, Name};

wire_struct! {
    #[derive(Copy)]
    pub struct RenameArgs<'a> {
        pub old: Name<'a>,
        pub new: Name<'a>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct RenameOk {
        pub source: ChangeInfo,
        pub target: ChangeInfo,
    }
}
