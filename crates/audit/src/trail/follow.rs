//! Reading a trail as it grows, over the ends of segments, from a place that can be kept. At least
//! once: where a crash has cut what was read, the segment is read again.

use std::io;
use std::path::{Path, PathBuf};

use super::{Segment, SegmentFile, segments};
use crate::frame::{FrameError, Kind, MAGIC, parse};
use crate::record::seq_and_time;

/// How far a trail was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The segment.
    pub segment: u64,
    /// Where in it the next frame begins, uncompressed.
    pub offset: u64,
    /// Sequence number that the next record has; 0 if it isn't known.
    pub next_seq: u64,
}

/// A reader that goes along with the writer.
#[derive(Debug)]
pub struct Follower {
    directory: PathBuf,
    place: Place,
    /// A compressed segment's bytes.
    plain: Option<(u64, Vec<u8>)>,
    lost: u64,
    /// Nothing was read yet at this place: a crash may have taken away what was there.
    is_unsure: bool,
    /// Records from this number on are not handed out yet.
    until: u64,
}

/// So much is read at once of a segment that isn't compressed.
const READ_LEN: u64 = 1 << 20;

impl Follower {
    /// Goes on from a place; the default is the trail's beginning.
    pub fn at(directory: &Path, place: Place) -> Follower {
        Follower { directory: directory.to_owned(), place, plain: None, lost: 0, is_unsure: true, until: u64::MAX }
    }

    /// Begins with what comes from now on.
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

    /// From now on, nothing is handed out from this record on, by its sequence number: what isn't
    /// durable may be another one after a crash.
    pub fn set_until(&mut self, until: u64) {
        self.until = until;
    }

    /// How far everything was handed out.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Segments that retention removed before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Calls `each` with the records that are there and weren't handed out, the place after each,
    /// and the boot that it was written in, where that can be read, until it says no; what it said
    /// no to counts as handed out. Returns whether there was any. Doesn't wait.
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
                // Compressed or removed since the look: another one tells.
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
                    // We had read what a crash took away, and something else is there now.
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
