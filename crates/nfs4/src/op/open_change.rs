//! What follows an OPEN: OPEN_CONFIRM (RFC 7530, section 16.18), OPEN_DOWNGRADE and OPENATTR (RFC
//! 8881, sections 18.18 and 18.17).

use super::{ShareAccess, ShareDeny};
use crate::macros::wire_struct;
use crate::{OwnerSeq, Stateid};

wire_struct! {
    /// `OPENATTR4args`.
    #[derive(Copy)]
    pub struct OpenattrArgs {
        /// Whether to make the directory of named attributes.
        pub create: bool,
    }
}

wire_struct! {
    /// `OPEN_CONFIRM4args`.
    #[derive(Copy)]
    pub struct OpenConfirmArgs {
        /// The open.
        pub stateid: Stateid,
        /// The open owner's number.
        pub seq: OwnerSeq,
    }
}

wire_struct! {
    /// `OPEN_CONFIRM4resok`.
    #[derive(Copy)]
    pub struct OpenConfirmOk {
        /// The open.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// `OPEN_DOWNGRADE4args`.
    #[derive(Copy)]
    pub struct OpenDowngradeArgs {
        /// The open.
        pub stateid: Stateid,
        /// The open owner's number (4.0).
        pub seq: OwnerSeq,
        /// What remains allowed.
        pub access: ShareAccess,
        /// What remains forbidden to others.
        pub deny: ShareDeny,
    }
}

wire_struct! {
    /// `OPEN_DOWNGRADE4resok`.
    #[derive(Copy)]
    pub struct OpenDowngradeOk {
        /// The open.
        pub stateid: Stateid,
    }
}
