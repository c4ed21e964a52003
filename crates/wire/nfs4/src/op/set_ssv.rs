//! SET_SSV (RFC 8881 §18.47).

use crate::Bytes;
use crate::macros::wire_struct;

/// Longer than any hash.
const SSV_LEN_MAX: usize = 1024;

wire_struct! {
    #[derive(Copy)]
    pub struct SetSsvArgs<'a> {
        pub ssv: Bytes<'a, SSV_LEN_MAX>,
        pub digest: Bytes<'a, SSV_LEN_MAX>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct SetSsvOk<'a> {
        pub digest: Bytes<'a, SSV_LEN_MAX>,
    }
}
