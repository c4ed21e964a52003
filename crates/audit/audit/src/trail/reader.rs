//! Reads segments, as a whole or frame by frame, without verification.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::OnceLock;

use super::compress::{Block, blocks, unpack};
use super::files::{SegmentFile, segments};
use crate::Record;
use crate::chain::TAG_LEN;
use crate::frame::{BODY_LEN_MAX, FrameError, HEAD_LEN, Header, Kind, MAGIC, parse};

/// An open segment, compressed or not.
pub struct Segment {
    file: File,
    len: u64,
    blocks: Option<Vec<Block>>,
    recent: parking_lot::Mutex<Option<(u64, Vec<u8>)>>,
    boot: OnceLock<Option<[u8; 16]>>,
}

/// A frame with its place.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Number of the segment.
    pub segment: u64,
    /// Boot id of the writer.
    pub boot: [u8; 16],
    /// Offset in the uncompressed segment.
    pub offset: u64,
    /// What the body is.
    pub kind: Kind,
    /// Not verified.
    pub body: Vec<u8>,
}

impl Segment {
    /// Reads the block table of a compressed segment.
    pub fn open(segment: &SegmentFile) -> io::Result<Segment> {
        let file = File::open(&segment.path)?;
        let len = file.metadata()?.len();
        let blocks = match segment.is_compressed {
            true => Some(blocks(len, |at, len| read(&file, at, len))?),
            false => None,
        };
        Ok(Segment {
            file,
            len,
            blocks,
            recent: parking_lot::Mutex::new(None),
            boot: OnceLock::new(),
        })
    }

    pub(super) fn open_listed(file: &SegmentFile) -> io::Result<Segment> {
        match Segment::open(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_compressed => {
                let directory = file.path.parent().unwrap_or(Path::new("."));
                Segment::open(&SegmentFile::compressed(directory, file.number))
            }
            other => other,
        }
    }

    /// `None` if the header is missing or damaged.
    pub fn boot(&self) -> Option<[u8; 16]> {
        let read = || {
            self.frame_at(MAGIC.len() as u64)
                .ok()
                .and_then(|(_, body)| Header::decode(&body))
                .map(|header| header.boot)
        };
        *self.boot.get_or_init(read)
    }

    /// Bytes.
    pub fn uncompressed_len(&self) -> u64 {
        match &self.blocks {
            None => self.len,
            Some(blocks) => blocks
                .last()
                .map_or(0, |block| block.uncompressed_offset + block.uncompressed_len as u64),
        }
    }

    /// Uncompressed.
    pub fn load(&self) -> io::Result<Vec<u8>> {
        match &self.blocks {
            None => read(&self.file, 0, usize::try_from(self.len).unwrap_or(usize::MAX)),
            Some(blocks) => {
                let mut out = Vec::new();
                for block in blocks {
                    out.extend_from_slice(&unpack(&read(&self.file, block.at, block.len)?, block)?);
                }
                Ok(out)
            }
        }
    }

    pub(super) fn bytes_at(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        read(&self.file, at, len)
    }

    pub(super) fn tag_before(&self, offset: u64) -> io::Result<Option<[u8; TAG_LEN]>> {
        let Some(at) =
            offset.checked_sub(TAG_LEN as u64).filter(|_| offset <= self.uncompressed_len())
        else {
            return Ok(None);
        };
        let bytes = match &self.blocks {
            None => read(&self.file, at, TAG_LEN)?,
            Some(blocks) => match blocks.iter().rfind(|block| block.uncompressed_offset <= at) {
                Some(block) => {
                    let uncompressed = unpack(&read(&self.file, block.at, block.len)?, block)?;
                    uncompressed
                        .get((at - block.uncompressed_offset) as usize..)
                        .unwrap_or_default()
                        .to_vec()
                }
                None => Vec::new(),
            },
        };
        Ok(bytes.first_chunk().copied())
    }

    /// Kind and body of the frame at `offset`. Reads one frame, or one block of about 128 KiB.
    pub fn frame_at(&self, offset: u64) -> io::Result<(Kind, Vec<u8>)> {
        let invalid = |error: FrameError| io::Error::new(io::ErrorKind::InvalidData, error);
        match &self.blocks {
            None => {
                let len =
                    self.len.saturating_sub(offset).min((HEAD_LEN + BODY_LEN_MAX + TAG_LEN) as u64);
                let head = read(&self.file, offset, HEAD_LEN.min(len as usize))?;
                let body_len = head
                    .first_chunk::<3>()
                    .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], 0]))
                    as usize;
                let bytes =
                    read(&self.file, offset, (HEAD_LEN + body_len + TAG_LEN).min(len as usize))?;
                let frame = parse(&bytes).map_err(invalid)?;
                Ok((frame.kind, frame.body.to_vec()))
            }
            Some(blocks) => {
                let at = blocks
                    .partition_point(|block| block.uncompressed_offset <= offset)
                    .checked_sub(1);
                let block = at.map(|at| &blocks[at]).filter(|block| {
                    offset < block.uncompressed_offset + block.uncompressed_len as u64
                });
                let block = block.ok_or_else(|| {
                    io::Error::new(io::ErrorKind::UnexpectedEof, "no frame starts at this offset")
                })?;
                let mut recent = self.recent.lock();
                if recent.as_ref().is_none_or(|(at, _)| *at != block.uncompressed_offset) {
                    *recent = Some((
                        block.uncompressed_offset,
                        unpack(&read(&self.file, block.at, block.len)?, block)?,
                    ));
                }
                let bytes = recent.as_ref().map_or(&[][..], |(_, bytes)| bytes);
                let frame = parse(&bytes[(offset - block.uncompressed_offset) as usize..])
                    .map_err(invalid)?;
                Ok((frame.kind, frame.body.to_vec()))
            }
        }
    }
}

/// Calls `each` with all records from segment `first` on. A record that cannot be decoded is an error.
pub fn records(directory: &Path, first: u64, mut each: impl FnMut(&Record<'_>)) -> io::Result<()> {
    let mut decoded = Ok(());
    entries(directory, first, |entry| {
        if entry.kind == Kind::Record {
            match Record::decode(&entry.body, &mut Vec::new()) {
                Ok(record) => each(&record),
                Err(error) => decoded = Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        decoded.is_ok()
    })?;
    decoded
}

/// Calls `each` with all frames from segment `first` on until it returns false. Skips an incomplete
/// frame at the end of the open segment.
pub fn entries(
    directory: &Path,
    first: u64,
    mut each: impl FnMut(Entry) -> bool,
) -> io::Result<()> {
    for file in segments(directory)?.into_iter().filter(|file| file.number >= first) {
        let bytes = Segment::open_listed(&file)?.load()?;
        let damaged = |reason: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {reason}", file.path.display()))
        };
        let mut at = MAGIC.len();
        if !bytes.starts_with(&MAGIC) && !bytes.is_empty() {
            return Err(damaged("not a segment of an audit trail"));
        }
        let mut boot = None;
        while at < bytes.len() {
            let frame = match parse(&bytes[at..]) {
                Ok(frame) => frame,
                Err(FrameError::Truncated) => break,
                Err(FrameError::Malformed) => {
                    return Err(damaged("the segment contains a malformed frame"));
                }
            };
            if frame.kind == Kind::Header {
                boot = Header::decode(frame.body).map(|header| header.boot);
            }
            let boot = boot.ok_or_else(|| damaged("the segment does not start with a header"))?;
            let entry = Entry {
                segment: file.number,
                boot,
                offset: at as u64,
                kind: frame.kind,
                body: frame.body.to_vec(),
            };
            at += frame.len();
            if !each(entry) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn read(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    if done < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}
