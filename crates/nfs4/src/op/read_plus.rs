//! READ_PLUS (RFC 7862, section 15.10). The server writes the segments of a reply in place.

use vouch_xdr::Writer;

use super::Op;
use super::read::IO_LEN_MAX;
use crate::macros::{wire_enum, wire_struct, wire_union};
use crate::{Bytes, List, Stateid, Status};

/// Maximum number of segments in a reply that a client accepts.
pub(crate) const READ_PLUS_SEGMENTS_MAX: usize = 64 * 1024;

wire_enum! {
    pub enum DataContent = "data_content4" {
        Data = 0,
        Hole = 1,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct ReadPlusArgs {
        /// Stateid of an open, a lock or a delegation, or a special stateid.
        pub stateid: Stateid,
        pub offset: u64,
        pub count: u32,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct DataSegment<'a> {
        pub offset: u64,
        pub data: Bytes<'a, IO_LEN_MAX>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct HoleSegment {
        pub offset: u64,
        pub length: u64,
    }
}

wire_union! {
    #[derive(Copy)]
    pub enum Content<'a> = "data_content4" {
        0 => Data(segment: DataSegment<'a>),
        1 => Hole(segment: HoleSegment),
    }
}

wire_struct! {
    pub struct ReadPlusOk<'a> {
        pub eof: bool,
        /// Segments in file order.
        pub contents: List<Content<'a>, READ_PLUS_SEGMENTS_MAX>,
    }
}

/// Writes a successful result in place, one segment after another.
#[derive(Debug)]
#[must_use = "the result is complete only after `finish`"]
pub struct ReadPlusWriter {
    eof_at: usize,
    segments: u32,
}

impl ReadPlusWriter {
    /// Appends the fields before the segments.
    pub fn begin(w: &mut Writer) -> Self {
        w.u32(Op::READ_PLUS.0);
        w.u32(Status::OK.0);
        w.u32(0);
        w.u32(0);
        Self { eof_at: w.len() - 8, segments: 0 }
    }

    pub const fn result_start(&self) -> usize {
        self.eof_at - 8
    }

    pub fn hole(&mut self, w: &mut Writer, offset: u64, length: u64) {
        w.u32(DataContent::Hole as u32);
        w.u64(offset);
        w.u64(length);
        self.segments += 1;
    }

    /// Appends the head of a data segment.
    pub fn begin_data(&mut self, w: &mut Writer, offset: u64) -> usize {
        w.u32(DataContent::Data as u32);
        w.u64(offset);
        self.segments += 1;
        w.begin_opaque()
    }

    /// Ends the data segment that starts at `start`.
    pub fn end_data(&mut self, w: &mut Writer, start: usize) {
        w.end_opaque(start);
    }

    /// Fills in the number of segments and the end-of-file flag.
    pub fn finish(self, w: &mut Writer, eof: bool) {
        w.set_u32(self.eof_at, eof.into());
        w.set_u32(self.eof_at + 4, self.segments);
    }
}
