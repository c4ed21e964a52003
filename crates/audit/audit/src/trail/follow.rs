//! Follows a growing trail from a stored position, with each record at least once: a segment is
//! read again after a crash.

use std::io;
use std::path::{Path, PathBuf};

use super::{Segment, SegmentFile, segments};
use crate::frame::{Frame, FrameError, Kind, MAGIC, parse};
use crate::record::seq_and_time;

/// A place in a trail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the segment; 0: before the first.
    pub segment: u64,
    /// Offset of the next frame in the uncompressed segment.
    pub offset: u64,
    /// Sequence number of the next record, or 0 if unknown.
    pub next_seq: u64,
}

/// Reads records of a trail as they are written.
#[derive(Debug)]
pub struct Follower {
    directory: PathBuf,
    position: Position,
    uncompressed: Option<(u64, Vec<u8>)>,
    lost: u64,
    /// A crash may have replaced this position, because nothing was read here yet.
    is_unconfirmed: bool,
    seq_limit: u64,
}

const READ_LEN: u64 = 1 << 20;

impl Follower {
    /// Continues where another follower stopped.
    pub fn from_position(directory: &Path, position: Position) -> Follower {
        Follower {
            directory: directory.to_owned(),
            position,
            uncompressed: None,
            lost: 0,
            is_unconfirmed: true,
            seq_limit: u64::MAX,
        }
    }

    /// Skips what the trail holds now.
    pub fn from_end(directory: &Path) -> io::Result<Follower> {
        let mut position = Position::default();
        if let Some(file) = segments(directory)?.last() {
            let uncompressed = Segment::open(file)?.load()?;
            let mut at = MAGIC.len();
            while let Some(Ok(frame)) = uncompressed.get(at..).map(parse) {
                at += frame.len();
            }
            position = Position { segment: file.number, offset: at as u64, next_seq: 0 };
        }
        Ok(Follower::from_position(directory, position))
    }

    /// Withholds records from this number on, which a crash may replace.
    pub fn set_limit(&mut self, seq_limit: u64) {
        self.seq_limit = seq_limit;
    }

    /// After the last delivered record.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Segments that retention removed before they were read.
    pub fn skipped_segments(&self) -> u64 {
        self.lost
    }

    /// Until `each` returns false. `each` gets the position after the record and its boot id.
    /// Returns true after any record. Does not wait.
    pub fn read(
        &mut self,
        mut each: impl FnMut(&[u8], Position, Option<[u8; 16]>) -> bool,
    ) -> io::Result<bool> {
        let mut any = false;
        self.is_unconfirmed = self.position.next_seq != 0;
        loop {
            let files = segments(&self.directory)?;
            let Some(file) = files.iter().find(|file| file.number >= self.position.segment.max(1))
            else {
                return Ok(any);
            };
            if file.number != self.position.segment {
                if self.position.segment != 0 {
                    self.lost += file.number - self.position.segment;
                }
                self.position = Position { segment: file.number, offset: 0, next_seq: 0 };
            }
            let ended = match self.read_segment(file, &mut any, &mut each) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            match ended {
                ReadEnd::Closed => {
                    self.position = Position {
                        segment: file.number + 1,
                        offset: 0,
                        next_seq: self.position.next_seq,
                    }
                }
                ReadEnd::Stopped => return Ok(any),
                ReadEnd::NoMore => return Ok(any),
                ReadEnd::Replaced => {
                    self.position = Position { segment: file.number, offset: 0, next_seq: 0 };
                    self.is_unconfirmed = false;
                }
            }
        }
    }

    fn read_segment(
        &mut self,
        file: &SegmentFile,
        any: &mut bool,
        each: &mut impl FnMut(&[u8], Position, Option<[u8; 16]>) -> bool,
    ) -> io::Result<ReadEnd> {
        let segment = Segment::open(file)?;
        let len = segment.uncompressed_len();
        self.position.offset = self.position.offset.max(MAGIC.len() as u64);
        if self.position.offset > len {
            return Ok(if len >= MAGIC.len() as u64 { ReadEnd::Replaced } else { ReadEnd::NoMore });
        }
        if file.is_compressed
            && self.uncompressed.as_ref().is_none_or(|(number, _)| *number != file.number)
        {
            self.uncompressed = Some((file.number, segment.load()?));
        }
        if !file.is_compressed {
            self.uncompressed = None;
        }
        let uncompressed = self.uncompressed.take();
        let bytes = uncompressed.as_ref().map(|(_, bytes)| &bytes[..]);
        let end = self.read_frames(file, &segment, bytes, any, each);
        self.uncompressed = uncompressed;
        end
    }

    fn read_frames(
        &mut self,
        file: &SegmentFile,
        segment: &Segment,
        uncompressed: Option<&[u8]>,
        any: &mut bool,
        each: &mut impl FnMut(&[u8], Position, Option<[u8; 16]>) -> bool,
    ) -> io::Result<ReadEnd> {
        let (len, boot) = (segment.uncompressed_len(), segment.boot());
        loop {
            let start = self.position.offset;
            let read;
            let bytes = match uncompressed {
                Some(uncompressed) => uncompressed.get(start as usize..).unwrap_or_default(),
                None => {
                    read = segment.bytes_at(start, (len - start).min(READ_LEN) as usize)?;
                    &read
                }
            };
            let mut at = 0;
            while at < bytes.len() {
                let frame = match parse(&bytes[at..]) {
                    Ok(frame) => frame,
                    Err(FrameError::Truncated) => break,
                    Err(FrameError::Malformed) if self.is_unconfirmed => {
                        return Ok(ReadEnd::Replaced);
                    }
                    Err(error) => {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            format!("{}: {error}", file.path.display()),
                        ));
                    }
                };
                at += frame.len();
                let position = Position { offset: start + at as u64, ..self.position };
                if let Some(end) = self.take_frame(&frame, position, boot, any, each) {
                    return Ok(end);
                }
            }
            if at == 0 || self.position.offset >= len {
                return Ok(ReadEnd::NoMore);
            }
        }
    }

    /// `position` is behind the frame.
    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        mut position: Position,
        boot: Option<[u8; 16]>,
        any: &mut bool,
        each: &mut impl FnMut(&[u8], Position, Option<[u8; 16]>) -> bool,
    ) -> Option<ReadEnd> {
        match frame.kind {
            Kind::Close => {
                self.position = position;
                return Some(ReadEnd::Closed);
            }
            Kind::Header | Kind::Checkpoint => self.position = position,
            Kind::Record => {
                let seq = seq_and_time(frame.body).map_or(0, |(seq, _)| seq);
                if self.is_unconfirmed && seq != self.position.next_seq {
                    return Some(ReadEnd::Replaced);
                }
                if seq >= self.seq_limit {
                    return Some(ReadEnd::NoMore);
                }
                self.is_unconfirmed = false;
                position.next_seq = seq.wrapping_add(1);
                self.position = position;
                *any = true;
                if !each(frame.body, position, boot) {
                    return Some(ReadEnd::Stopped);
                }
            }
        }
        None
    }
}

enum ReadEnd {
    Closed,
    NoMore,
    Stopped,
    Replaced,
}
