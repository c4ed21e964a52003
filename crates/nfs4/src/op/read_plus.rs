//! READ_PLUS (RFC 7862, section 15.10). The segments of a reply are written in place.

use vouch_xdr::Writer;

use super::{IO_LEN_MAX, Op};
use crate::macros::{wire_enum, wire_struct, wire_union};
use crate::{Bytes, List, Stateid, Status};

/// Most segments of a reply that a client reads.
pub const READ_PLUS_SEGMENTS_MAX: usize = 64 * 1024;

wire_enum! {
    /// What there is at a place (`data_content4`).
    pub enum DataContent = "data_content4" {
        /// Data.
        Data = 0,
        /// Nothing.
        Hole = 1,
    }
}

wire_struct! {
    /// `READ_PLUS4args`.
    #[derive(Copy)]
    pub struct ReadPlusArgs {
        /// An open, a lock, a delegation, or a special one.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How many.
        pub count: u32,
    }
}

wire_struct! {
    /// `data4`.
    #[derive(Copy)]
    pub struct DataSegment<'a> {
        /// First byte.
        pub offset: u64,
        /// The data.
        pub data: Bytes<'a, IO_LEN_MAX>,
    }
}

wire_struct! {
    /// `data_info4`.
    #[derive(Copy)]
    pub struct HoleSegment {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
    }
}

wire_union! {
    /// A segment (`read_plus_content`).
    #[derive(Copy)]
    pub enum Content<'a> = "data_content4" {
        /// Data.
        0 => Data(segment: DataSegment<'a>),
        /// A hole.
        1 => Hole(segment: HoleSegment),
    }
}

wire_struct! {
    /// `read_plus_res4`.
    pub struct ReadPlusOk<'a> {
        /// Whether the segments reach the end of the file.
        pub eof: bool,
        /// In order.
        pub contents: List<Content<'a>, READ_PLUS_SEGMENTS_MAX>,
    }
}

/// Writes a successful result in place, segment by segment.
#[derive(Debug)]
#[must_use = "the result is whole only after `finish`"]
pub struct ReadPlusWriter {
    eof_at: usize,
    segments: u32,
}

impl ReadPlusWriter {
    /// Appends what stands before the segments.
    pub fn begin(w: &mut Writer) -> Self {
        w.u32(Op::READ_PLUS.0);
        w.u32(Status::OK.0);
        w.u32(0);
        w.u32(0);
        Self { eof_at: w.len() - 8, segments: 0 }
    }

    /// Where the result begins: truncate to this if the read fails after all.
    pub const fn result_start(&self) -> usize {
        self.eof_at - 8
    }

    /// Appends a hole.
    pub fn hole(&mut self, w: &mut Writer, offset: u64, length: u64) {
        w.u32(DataContent::Hole as u32);
        w.u64(offset);
        w.u64(length);
        self.segments += 1;
    }

    /// Appends what stands before data, which the caller appends to [`Writer::bytes_mut`]; then
    /// [`Self::end_data`] with what this returns.
    pub fn begin_data(&mut self, w: &mut Writer, offset: u64) -> usize {
        w.u32(DataContent::Data as u32);
        w.u64(offset);
        self.segments += 1;
        w.begin_opaque()
    }

    /// Ends data.
    pub fn end_data(&mut self, w: &mut Writer, start: usize) {
        w.end_opaque(start);
    }

    /// Fills in the count of the segments and whether they reach the end of the file.
    pub fn finish(self, w: &mut Writer, eof: bool) {
        w.set_u32(self.eof_at, eof.into());
        w.set_u32(self.eof_at + 4, self.segments);
    }
}
