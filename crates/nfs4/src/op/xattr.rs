//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276, section 8.4). Names omit the Linux
//! prefix `user.`.

use crate::macros::{wire_enum, wire_struct};
use crate::{Bytes, ChangeInfo, Cookie, List, Name};

/// Maximum length of an extended attribute's value that the decoder accepts. The server answers
/// XATTR2BIG above the Linux limit of 64 KiB.
pub(crate) const XATTR_VALUE_LEN_MAX: usize = 1024 * 1024;
/// Maximum number of names in one reply: a Linux list of 64 KiB holds no more.
pub const XATTR_NAMES_MAX: usize = 32 * 1024;

wire_struct! {
    /// `GETXATTR4args`.
    #[derive(Copy)]
    pub struct GetxattrArgs<'a> {
        /// Name of the extended attribute.
        pub name: Name<'a>,
    }
}

wire_struct! {
    /// Result of GETXATTR.
    #[derive(Copy)]
    pub struct GetxattrOk<'a> {
        /// Value of the extended attribute.
        pub value: Bytes<'a, XATTR_VALUE_LEN_MAX>,
    }
}

wire_enum! {
    /// Whether SETXATTR creates or replaces (`setxattr_option4`).
    pub enum SetxattrOption = "setxattr_option4" {
        /// Create or replace.
        Either = 0,
        /// Create; fail if the attribute exists.
        Create = 1,
        /// Replace; fail if the attribute does not exist.
        Replace = 2,
    }
}

wire_struct! {
    /// `SETXATTR4args`.
    #[derive(Copy)]
    pub struct SetxattrArgs<'a> {
        /// Whether to create or replace.
        pub option: SetxattrOption,
        /// Name of the extended attribute.
        pub name: Name<'a>,
        /// New value.
        pub value: Bytes<'a, XATTR_VALUE_LEN_MAX>,
    }
}

wire_struct! {
    /// Result of SETXATTR and REMOVEXATTR.
    #[derive(Copy)]
    pub struct XattrChange {
        /// Change of the file.
        pub change: ChangeInfo,
    }
}

wire_struct! {
    /// `LISTXATTRS4args`.
    #[derive(Copy)]
    pub struct ListxattrsArgs {
        /// Position after which the list continues; zero means the start.
        pub cookie: Cookie,
        /// Maximum length of the result's body.
        pub max_count: u32,
    }
}

wire_struct! {
    /// `LISTXATTRS4resok`.
    pub struct ListxattrsOk<'a> {
        /// Position at which the next call continues.
        pub cookie: Cookie,
        /// Names of extended attributes.
        pub names: List<Name<'a>, XATTR_NAMES_MAX>,
        /// Whether the list is complete.
        pub eof: bool,
    }
}

wire_struct! {
    /// `REMOVEXATTR4args`.
    #[derive(Copy)]
    pub struct RemovexattrArgs<'a> {
        /// Name of the extended attribute.
        pub name: Name<'a>,
    }
}
