//! Pack files: a header, then records equal to GETDATA's encoding of a found frame.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use vouch_tree::{BlockHandle, FRAME_LEN_MAX, FrameKind, Iv};
use vouch_xdr::pad_len;

use crate::frames::{FRAME_LEN_MIN, checked_kind};
use crate::layout::PackClass;
use crate::{Error, Result};

pub(crate) const HEADER_LEN: usize = 32;

pub(crate) const PACK_LEN_LIMIT: u64 = 1 << 31;

/// A terabyte has 32 Ki packs, each small enough to move whole.
pub(crate) const PACK_LEN_MAX: u32 = 32 << 20;
/// Squid keeps objects below 512 KB in memory, HAProxy below 1/256 of its cache.
pub(crate) const PACK_LEN_MIN: u32 = 448 << 10;

pub const RECORD_HEAD_LEN: usize = 8;

const MAGIC: [u8; 8] = *b"VOUCHPAK";
const VERSION: u32 = 1;
const FOUND: u32 = 1;

pub(crate) fn header(class: PackClass, iv: &Iv) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_be_bytes());
    bytes[12..16].copy_from_slice(&class.number().to_be_bytes());
    bytes[16..].copy_from_slice(&iv.handle_of(b"vouch pack").as_bytes()[..16]);
    bytes
}

pub fn record_head(frame_len: u32) -> [u8; RECORD_HEAD_LEN] {
    let mut bytes = [0; RECORD_HEAD_LEN];
    bytes[..4].copy_from_slice(&FOUND.to_be_bytes());
    bytes[4..].copy_from_slice(&frame_len.to_be_bytes());
    bytes
}

pub(crate) fn record_pad(frame_len: usize) -> &'static [u8] {
    &[0; 3][..pad_len(frame_len)]
}

pub(crate) const fn record_len(frame_len: u32) -> u32 {
    RECORD_HEAD_LEN as u32 + frame_len + pad_len(frame_len as usize) as u32
}

#[derive(Debug)]
pub(crate) struct PackScan {
    path: PathBuf,
    reader: BufReader<File>,
    class: PackClass,
    iv: Iv,
    offset: u64,
    end: u64,
    body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum Scanned<'a> {
    Record { offset: u32, handle: BlockHandle, kind: FrameKind, frame: &'a [u8] },
    End,
    Torn,
}

impl PackScan {
    /// Reads the first `len` bytes. `None` for a wrong header.
    pub(crate) fn open(path: &Path, class: PackClass, iv: &Iv, len: u64) -> Result<Option<Self>> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let mut reader = BufReader::with_capacity(READ_BUFFER_LEN, file);
        let mut found = [0; HEADER_LEN];
        match reader.read_exact(&mut found) {
            Ok(()) if found == header(class, iv) && len >= HEADER_LEN as u64 => {}
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(Error::io("read", path)(error));
            }
            _ => return Ok(None),
        }
        let body = Vec::with_capacity(FRAME_LEN_MAX + 3);
        Ok(Some(Self {
            path: path.to_owned(),
            reader,
            class,
            iv: *iv,
            offset: HEADER_LEN as u64,
            end: len,
            body,
        }))
    }

    pub(crate) fn whole_len(&self) -> u64 {
        self.offset
    }

    pub(crate) fn next(&mut self) -> Result<Scanned<'_>> {
        let left = self.end - self.offset;
        if left == 0 {
            return Ok(Scanned::End);
        }
        let mut head = [0; RECORD_HEAD_LEN];
        if left < head.len() as u64 || !self.fill_head(&mut head)? {
            return Ok(Scanned::Torn);
        }
        let frame_len = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        if head[..4] != FOUND.to_be_bytes()
            || !(FRAME_LEN_MIN..=FRAME_LEN_MAX).contains(&(frame_len as usize))
        {
            return Ok(Scanned::Torn);
        }
        let record_len = u64::from(record_len(frame_len));
        if left < record_len || !self.fill_body(record_len as usize - RECORD_HEAD_LEN)? {
            return Ok(Scanned::Torn);
        }
        let (frame, pad) = self.body.split_at(frame_len as usize);
        let Ok(kind) = checked_kind(frame) else { return Ok(Scanned::Torn) };
        if PackClass::of(kind) != self.class || pad.iter().any(|&b| b != 0) {
            return Ok(Scanned::Torn);
        }
        let Ok(offset) = u32::try_from(self.offset) else { return Ok(Scanned::Torn) };
        self.offset += record_len;
        Ok(Scanned::Record { offset, handle: self.iv.handle_of(frame), kind, frame })
    }

    fn fill_head(&mut self, head: &mut [u8; RECORD_HEAD_LEN]) -> Result<bool> {
        filled(self.reader.read_exact(head), &self.path)
    }

    fn fill_body(&mut self, len: usize) -> Result<bool> {
        self.body.resize(len, 0);
        filled(self.reader.read_exact(&mut self.body), &self.path)
    }
}

fn filled(result: std::io::Result<()>, path: &Path) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

const READ_BUFFER_LEN: usize = 1 << 20;
