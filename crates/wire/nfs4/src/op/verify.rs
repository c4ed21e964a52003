//! VERIFY and NVERIFY (RFC 8881 §18.31 and 18.15).

use crate::Fattr;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct VerifyArgs<'a> {
        pub attrs: Fattr<'a>,
    }
}
