//! READLINK (RFC 8881 §18.24).

use super::LINK_TEXT_LEN_MAX;
use crate::Bytes;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct ReadlinkOk<'a> {
        pub link: Bytes<'a, LINK_TEXT_LEN_MAX>,
    }
}
