//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276, section 8.4). Names are without the
//! `user.` of Linux.

use crate::macros::{wire_enum, wire_struct};
use crate::{Bytes, ChangeInfo, Cookie, List, Name};

/// Longest value of an extended attribute that is read; beyond what Linux keeps (64 KiB) the answer
/// is XATTR2BIG.
pub const XATTR_VALUE_LEN_MAX: usize = 1024 * 1024;
/// Most names of one reply: what Linux lists in 64 KiB.
pub const XATTR_NAMES_MAX: usize = 32 * 1024;

wire_struct! {
    /// `GETXATTR4args`.
    #[derive(Copy)]
    pub struct GetxattrArgs<'a> {
        /// Which.
        pub name: Name<'a>,
    }
}

wire_struct! {
    /// The result of GETXATTR.
    #[derive(Copy)]
    pub struct GetxattrOk<'a> {
        /// Its value.
        pub value: Bytes<'a, XATTR_VALUE_LEN_MAX>,
    }
}

wire_enum! {
    /// What may be there before (`setxattr_option4`).
    pub enum SetxattrOption = "setxattr_option4" {
        /// Either.
        Either = 0,
        /// Nothing.
        Create = 1,
        /// Another value.
        Replace = 2,
    }
}

wire_struct! {
    /// `SETXATTR4args`.
    #[derive(Copy)]
    pub struct SetxattrArgs<'a> {
        /// What may be there before.
        pub option: SetxattrOption,
        /// Which.
        pub name: Name<'a>,
        /// Its value.
        pub value: Bytes<'a, XATTR_VALUE_LEN_MAX>,
    }
}

wire_struct! {
    /// The result of SETXATTR and REMOVEXATTR.
    #[derive(Copy)]
    pub struct XattrChange {
        /// What it did to the file.
        pub change: ChangeInfo,
    }
}

wire_struct! {
    /// `LISTXATTRS4args`.
    #[derive(Copy)]
    pub struct ListxattrsArgs {
        /// After which name; zero is from the start.
        pub cookie: Cookie,
        /// Most bytes of the result's body.
        pub max_count: u32,
    }
}

wire_struct! {
    /// `LISTXATTRS4resok`.
    pub struct ListxattrsOk<'a> {
        /// Where to go on.
        pub cookie: Cookie,
        /// The names.
        pub names: List<Name<'a>, XATTR_NAMES_MAX>,
        /// Whether they are the last.
        pub eof: bool,
    }
}

wire_struct! {
    /// `REMOVEXATTR4args`.
    #[derive(Copy)]
    pub struct RemovexattrArgs<'a> {
        /// Which.
        pub name: Name<'a>,
    }
}
