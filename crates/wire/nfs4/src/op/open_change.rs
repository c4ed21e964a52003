//! OPEN_CONFIRM (RFC 7530 §16.18), OPEN_DOWNGRADE and OPENATTR (RFC 8881 §18.18 and 18.17).

use super::{ShareAccess, ShareDeny};
use crate::macros::wire_struct;
use crate::{OwnerSeq, Stateid};

wire_struct! {
    #[derive(Copy)]
    pub struct OpenattrArgs {
        pub create: bool,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct OpenConfirmArgs {
        pub stateid: Stateid,
        pub seq: OwnerSeq,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct OpenConfirmOk {
        pub stateid: Stateid,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct OpenDowngradeArgs {
        pub stateid: Stateid,
        /// 4.0.
        pub seq: OwnerSeq,
        pub access: ShareAccess,
        pub deny: ShareDeny,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct OpenDowngradeOk {
        pub stateid: Stateid,
    }
}
