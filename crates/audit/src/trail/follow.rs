//! Follows a growing trail across segments, from a position that the caller can store. Delivery is
//! at least once: if a crash removed records that were read, the segment is read again.

use std::io;
use std::path::{Path, PathBuf};

use super::{Segment, SegmentFile, segments};
use crate::frame::{FrameError, Kind, MAGIC, parse};
use crate::record::seq_and_time;

/// A reading position in a trail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the segment.
    pub segment: u64,
    /// Offset of the next frame in the uncompressed segment.
    pub offset: u64,
    /// Sequence number of the next record, or 0 if unknown.
    pub next_seq: u64,
}

/// A reader that follows a trail while it is written.
#[derive(Debug)]
pub struct Follower {
    directory: PathBuf,
    place: Place,
    /// Number and bytes of the current segment, if it is compressed.
    plain: Option<(u64, Vec<u8>)>,
    lost: u64,
    /// Nothing was read at this position yet, so a crash may have removed what was here.
    is_unsure: bool,
    /// Records from this sequence number on are withheld.
    until: u64,
}

/// Bytes per read of an uncompressed segment.
const READ_LEN: u64 = 1 << 20;

impl Follower {
    /// Starts at a position. The default position is the start of the trail.
    pub fn at(directory: &Path, place: Place) -> Follower {
        Follower { directory: directory.to_owned(), place, plain: None, lost: 0, is_unsure: true, until: u64::MAX }
    }

    /// Starts at the current end of the trail.
    pub fn at_end(directory: &Path) -> io::Result<Follower> {
        let mut place = Place::default();
        if let Some(file) = segments(directory)?.last() {
            let plain = Segment::open(file)?.load()?;
            let mut at = MAGIC.len();
            while let Some(Ok(frame)) = plain.get(at..).map(parse) {
                at += frame.len();
            }
            place = Place { segment: file.number, offset: at as u64, next_seq: 0 };
        }
        Ok(Follower::at(directory, place))
    }

    /// Withholds records from this sequence number on. A record that is not durable may be replaced
    /// by another one after a crash.
    pub fn set_until(&mut self, until: u64) {
        self.until = until;
    }

    /// Returns the position after the last delivered record.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the number of segments that retention removed before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Calls `each` with every new record, the position after it and its boot id if known, until
    /// `each` returns false. That last record counts as delivered. Returns whether there was any
    /// record. Does not wait for new ones.
    pub fn read(&mut self, mut each: impl FnMut(&[u8], Place, Option<[u8; 16]>) -> bool) -> io::Result<bool> {
        let mut any = false;
        self.is_unsure = self.place.next_seq != 0;
        loop {
            let files = segments(&self.directory)?;
            let Some(file) = files.iter().find(|file| file.number >= self.place.segment.max(1)) else { return Ok(any) };
            if file.number != self.place.segment {
                if self.place.segment != 0 {
                    self.lost += file.number - self.place.segment;
                }
                self.place = Place { segment: file.number, offset: 0, next_seq: 0 };
            }
            let ended = match self.read_segment(file, &mut any, &mut each) {
                // The segment was compressed or removed in between; list the files again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            match ended {
                Ended::Closed => self.place = Place { segment: file.number + 1, offset: 0, next_seq: self.place.next_seq },
                Ended::Enough => return Ok(any),
                Ended::NoMore => return Ok(any),
                Ended::Cut => {
                    self.place = Place { segment: file.number, offset: 0, next_seq: 0 };
                    self.is_unsure = false;
                }
            }
        }
    }

    fn read_segment(
        &mut self,
        file: &SegmentFile,
        any: &mut bool,
        each: &mut impl FnMut(&[u8], Place, Option<[u8; 16]>) -> bool,
    ) -> io::Result<Ended> {
        let segment = Segment::open(file)?;
        let len = segment.plain_len();
        self.place.offset = self.place.offset.max(MAGIC.len() as u64);
        let boot = segment.boot();
        if self.place.offset > len {
            return Ok(if len >= MAGIC.len() as u64 { Ended::Cut } else { Ended::NoMore });
        }
        if file.packed && self.plain.as_ref().is_none_or(|(number, _)| *number != file.number) {
            self.plain = Some((file.number, segment.load()?));
        }
        if !file.packed {
            self.plain = None;
        }
        loop {
            let start = self.place.offset;
            let read;
            let bytes = match &self.plain {
                Some((_, plain)) => plain.get(start as usize..).unwrap_or_default(),
                None => {
                    read = segment.bytes_at(start, (len - start).min(READ_LEN) as usize)?;
                    &read
                }
            };
            let mut at = 0;
            while at < bytes.len() {
                let frame = match parse(&bytes[at..]) {
                    Ok(frame) => frame,
                    Err(FrameError::Cut) => break,
                    // A crash removed bytes that were read before, and other bytes follow.
                    Err(FrameError::Malformed) if self.is_unsure => return Ok(Ended::Cut),
                    Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", file.path.display()))),
                };
                at += frame.len();
                let mut place = Place { offset: start + at as u64, ..self.place };
                match frame.kind {
                    Kind::Close => {
                        self.place = place;
                        return Ok(Ended::Closed);
                    }
                    Kind::Header | Kind::Checkpoint => self.place = place,
                    Kind::Record => {
                        let seq = seq_and_time(frame.body).map_or(0, |(seq, _)| seq);
                        if self.is_unsure && seq != self.place.next_seq {
                            return Ok(Ended::Cut);
                        }
                        if seq >= self.until {
                            return Ok(Ended::NoMore);
                        }
                        self.is_unsure = false;
                        place.next_seq = seq.wrapping_add(1);
                        self.place = place;
                        *any = true;
                        if !each(frame.body, place, boot) {
                            return Ok(Ended::Enough);
                        }
                    }
                }
            }
            if at == 0 || self.place.offset >= len {
                return Ok(Ended::NoMore);
            }
        }
    }
}

enum Ended {
    Closed,
    NoMore,
    Enough,
    Cut,
}
