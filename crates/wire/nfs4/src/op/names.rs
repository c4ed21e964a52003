//! Operations on names in directories.

use super::LINK_TEXT_LEN_MAX;
use crate::macros::wire_copy;
use crate::{Bytes, ChangeInfo, Name};

// LOOKUP (RFC 8881 §18.13).

wire_copy! {
    pub struct LookupArgs<'a> { pub name: Name<'a> }
}

// READLINK (RFC 8881 §18.24).

wire_copy! {
    pub struct ReadlinkOk<'a> { pub link: Bytes<'a, LINK_TEXT_LEN_MAX> }
}

// LINK (RFC 8881 §18.9).

wire_copy! {
    /// The saved filehandle is the file.
    pub struct LinkArgs<'a> { pub name: Name<'a> }
    pub struct LinkOk { pub change: ChangeInfo }
}

// REMOVE (RFC 8881 §18.25).

wire_copy! {
    pub struct RemoveArgs<'a> { pub name: Name<'a> }
    pub struct RemoveOk { pub change: ChangeInfo }
}

// RENAME (RFC 8881 §18.26).

wire_copy! {
    pub struct RenameArgs<'a> { pub old: Name<'a>, pub new: Name<'a> }
    pub struct RenameOk { pub source: ChangeInfo, pub target: ChangeInfo }
}
