//! CLOSE (RFC 8881, section 18.2).

use crate::macros::wire_struct;
use crate::{OwnerSeq, Stateid};

wire_struct! {
    #[derive(Copy)]
    pub struct CloseArgs {
        /// Sequence number of the open owner (4.0).
        pub seq: OwnerSeq,
        /// Stateid of the open.
        pub stateid: Stateid,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CloseOk {
        /// Stateid without a meaning after CLOSE.
        pub stateid: Stateid,
    }
}
