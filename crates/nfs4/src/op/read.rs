//! READ (RFC 8881, section 18.22). The data of a reply is written in place, or spliced in by the
//! caller.

use vouch_xdr::Writer;

use super::Op;
use crate::macros::wire_struct;
use crate::{Bytes, Stateid, Status};

/// Longest data of a READ or WRITE that is taken from the wire; a record and a session allow less.
pub const IO_LEN_MAX: usize = 64 * 1024 * 1024;

wire_struct! {
    /// `READ4args`.
    #[derive(Copy)]
    pub struct ReadArgs {
        /// An open, a lock, a delegation, or a special one.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How many.
        pub count: u32,
    }
}

wire_struct! {
    /// `READ4resok`.
    #[derive(Copy)]
    pub struct ReadOk<'a> {
        /// Whether the data reaches the end of the file.
        pub eof: bool,
        /// The data.
        pub data: Bytes<'a, IO_LEN_MAX>,
    }
}

/// Writes a successful result in place: [`Self::begin`], the data appended to
/// [`Writer::bytes_mut`], [`Self::finish`].
#[derive(Debug)]
#[must_use = "the result is whole only after `finish`"]
pub struct ReadWriter {
    eof_at: usize,
    start: usize,
}

impl ReadWriter {
    /// Appends what stands before the data.
    pub fn begin(w: &mut Writer) -> Self {
        w.u32(Op::READ.0);
        w.u32(Status::OK.0);
        w.u32(0);
        Self { eof_at: w.len() - 4, start: w.begin_opaque() }
    }

    /// Where the result begins: truncate to this if the read fails after all.
    pub const fn result_start(&self) -> usize {
        self.eof_at - 8
    }

    /// Fills in what depends on the data that was appended.
    pub fn finish(self, w: &mut Writer, eof: bool) {
        w.set_u32(self.eof_at, eof.into());
        w.end_opaque(self.start);
    }

    /// Appends what stands before `len` bytes of data that the caller sends by other means, with
    /// padding after them.
    pub fn head(w: &mut Writer, eof: bool, len: u32) {
        w.u32(Op::READ.0);
        w.u32(Status::OK.0);
        w.bool(eof);
        w.u32(len);
    }
}
