//! READ (RFC 8881 §18.22). Replies are written in place or spliced in.

use vouch_xdr::Writer;

use super::Op;
use crate::macros::wire_copy;
use crate::wire::IO_LEN_MAX;
use crate::{Bytes, Stateid, Status};

wire_copy! {
    pub struct ReadArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub count: u32,
    }

    pub struct ReadOk<'a> { pub eof: bool, pub data: Bytes<'a, IO_LEN_MAX> }
}

/// Call [`Self::begin`], append the data to [`Writer::bytes_mut`], then call [`Self::finish`].
#[derive(Debug)]
#[must_use = "the result is complete only after `finish`"]
pub struct ReadWriter {
    eof_at: usize,
    start: usize,
}

impl ReadWriter {
    pub fn begin(w: &mut Writer) -> Self {
        w.u32(Op::READ.0);
        w.u32(Status::OK.0);
        w.u32(0);
        Self { eof_at: w.len() - 4, start: w.begin_opaque() }
    }

    pub const fn result_start(&self) -> usize {
        self.eof_at - 8
    }

    pub fn finish(self, w: &mut Writer, eof: bool) {
        w.set_u32(self.eof_at, eof.into());
        w.end_opaque(self.start);
    }

    /// The caller sends `len` bytes of data and the padding separately.
    pub fn head(w: &mut Writer, eof: bool, len: u32) {
        w.u32(Op::READ.0);
        w.u32(Status::OK.0);
        w.bool(eof);
        w.u32(len);
    }
}
