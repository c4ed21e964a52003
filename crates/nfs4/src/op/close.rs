//! CLOSE (RFC 8881, section 18.2).

use crate::macros::wire_struct;
use crate::{OwnerSeq, Stateid};

wire_struct! {
    /// `CLOSE4args`.
    #[derive(Copy)]
    pub struct CloseArgs {
        /// The open owner's number (4.0).
        pub seq: OwnerSeq,
        /// The open.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// The result.
    #[derive(Copy)]
    pub struct CloseOk {
        /// Of no use any more.
        pub stateid: Stateid,
    }
}
