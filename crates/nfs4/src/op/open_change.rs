//! OPEN_CONFIRM (RFC 7530, section 16.18), OPEN_DOWNGRADE and OPENATTR (RFC 8881, sections 18.18
//! and 18.17).

use super::{ShareAccess, ShareDeny};
use crate::macros::wire_struct;
use crate::{OwnerSeq, Stateid};

wire_struct! {
    #[derive(Copy)]
    pub struct OpenattrArgs {
        /// Whether to create the directory of named attributes.
        pub create: bool,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct OpenConfirmArgs {
        /// Stateid of the open.
        pub stateid: Stateid,
        /// Sequence number of the open owner.
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
        /// Stateid of the open.
        pub stateid: Stateid,
        /// Sequence number of the open owner (4.0).
        pub seq: OwnerSeq,
        /// Remaining access.
        pub access: ShareAccess,
        /// Remaining access denied to other opens.
        pub deny: ShareDeny,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct OpenDowngradeOk {
        pub stateid: Stateid,
    }
}
