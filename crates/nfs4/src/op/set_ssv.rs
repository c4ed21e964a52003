//! SET_SSV (RFC 8881, section 18.47).

use crate::Bytes;
use crate::macros::wire_struct;

/// Longest secret or digest: well over the longest hash.
const SSV_LEN_MAX: usize = 1024;

wire_struct! {
    /// `SET_SSV4args`.
    #[derive(Copy)]
    pub struct SetSsvArgs<'a> {
        /// What changes the secret.
        pub ssv: Bytes<'a, SSV_LEN_MAX>,
        /// Digest of the SEQUENCE.
        pub digest: Bytes<'a, SSV_LEN_MAX>,
    }
}

wire_struct! {
    /// `SET_SSV4resok`.
    #[derive(Copy)]
    pub struct SetSsvOk<'a> {
        /// Digest of the SEQUENCE's result.
        pub digest: Bytes<'a, SSV_LEN_MAX>,
    }
}
