//! READ_PLUS (RFC 7862 §15.10). Replies are written in place.

use vouch_xdr::Writer;

use super::Op;
use super::ranges::DataContent;
use crate::macros::{wire_copy, wire_struct, wire_union};
use crate::wire::IO_LEN_MAX;
use crate::{Bytes, List, Stateid, Status};

/// In a reply that a client accepts.
pub(crate) const READ_PLUS_SEGMENTS_MAX: usize = 64 * 1024;

wire_copy! {
    pub struct ReadPlusArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub count: u32,
    }

    pub struct DataSegment<'a> { pub offset: u64, pub data: Bytes<'a, IO_LEN_MAX> }
    pub struct HoleSegment { pub offset: u64, pub length: u64 }
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
        pub contents: List<Content<'a>, READ_PLUS_SEGMENTS_MAX>,
    }
}

#[derive(Debug)]
#[must_use = "the result is complete only after `finish`"]
pub struct ReadPlusWriter {
    eof_at: usize,
    segments: u32,
}

impl ReadPlusWriter {
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

    pub fn begin_data(&mut self, w: &mut Writer, offset: u64) -> usize {
        w.u32(DataContent::Data as u32);
        w.u64(offset);
        self.segments += 1;
        w.begin_opaque()
    }

    pub fn end_data(&mut self, w: &mut Writer, start: usize) {
        w.end_opaque(start);
    }

    pub fn finish(self, w: &mut Writer, eof: bool) {
        w.set_u32(self.eof_at, eof.into());
        w.set_u32(self.eof_at + 4, self.segments);
    }
}
