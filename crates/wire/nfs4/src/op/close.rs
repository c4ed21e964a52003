//! CLOSE (RFC 8881 §18.2).

use crate::macros::wire_struct;
use crate::{OwnerSeq, Stateid};

wire_struct! {
    #[derive(Copy)]
    pub struct CloseArgs {
        /// 4.0.
        pub seq: OwnerSeq,
        pub stateid: Stateid,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CloseOk {
        pub stateid: Stateid,
    }
}
