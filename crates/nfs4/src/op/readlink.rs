//! READLINK (RFC 8881, section 18.24).

use super::LINK_TEXT_LEN_MAX;
use crate::Bytes;
use crate::macros::wire_struct;

wire_struct! {
    /// `READLINK4resok`.
    #[derive(Copy)]
    pub struct ReadlinkOk<'a> {
        /// Text of the link.
        pub link: Bytes<'a, LINK_TEXT_LEN_MAX>,
    }
}
