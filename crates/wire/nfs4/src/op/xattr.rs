//! RFC 8276 §8.4. Names omit the Linux prefix `user.`.

use crate::macros::{wire_copy, wire_enum, wire_struct};
use crate::{Bytes, ChangeInfo, Cookie, List, Name};

/// Accepted by the decoder. The server answers XATTR2BIG above the Linux limit of 64 KiB.
pub(crate) const XATTR_VALUE_LEN_MAX: usize = 1024 * 1024;
/// In one reply: a Linux list of 64 KiB holds no more.
pub const XATTR_NAMES_MAX: usize = 32 * 1024;

wire_copy! {
    pub struct GetxattrArgs<'a> { pub name: Name<'a> }
    pub struct GetxattrOk<'a> { pub value: Bytes<'a, XATTR_VALUE_LEN_MAX> }
}

wire_enum! {
    pub enum SetxattrOption = "setxattr_option4" {
        Either = 0,
        Create = 1,
        Replace = 2,
    }
}

wire_copy! {
    pub struct SetxattrArgs<'a> {
        pub option: SetxattrOption,
        pub name: Name<'a>,
        pub value: Bytes<'a, XATTR_VALUE_LEN_MAX>,
    }

    pub struct XattrChange { pub change: ChangeInfo }

    pub struct ListxattrsArgs {
        /// After it, the list continues; zero means the start.
        pub cookie: Cookie,
        /// Of the result's body, bytes.
        pub max_count: u32,
    }
}

wire_struct! {
    pub struct ListxattrsOk<'a> {
        pub cookie: Cookie,
        pub names: List<Name<'a>, XATTR_NAMES_MAX>,
        pub eof: bool,
    }
}

wire_copy! {
    pub struct RemovexattrArgs<'a> { pub name: Name<'a> }
}
