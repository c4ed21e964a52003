//! Segments: append-only files of records, and the list of records written when a segment is full.
//!
//! Record: "VCR1", length of the frame (u32), handle (32 bytes), frame. List: "VCI1", count (u32),
//! for each record its handle, offset and length (u32 each), then BLAKE3 of all that (32 bytes).
//! Numbers are big-endian.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

use vouch_tree::{BlockHandle, FRAME_LEN_MAX};

pub(crate) const RECORD_MAGIC: [u8; 4] = *b"VCR1";
const LIST_MAGIC: [u8; 4] = *b"VCI1";

pub(crate) const RECORD_HEAD_LEN: usize = 40;

pub(crate) const LIST_ENTRY_LEN: usize = 40;
const HASH_LEN: usize = 32;

/// Covers several small records.
const SCAN_LEN: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

pub(crate) trait Disk: Send + Sync {
    /// Writes all of `parts`, one after the other.
    fn write_at(&self, file: &File, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()>;
}

pub(crate) struct SystemDisk;

impl Disk for SystemDisk {
    fn write_at(
        &self,
        file: &File,
        mut parts: &mut [IoSlice<'_>],
        mut offset: u64,
    ) -> io::Result<()> {
        while !parts.is_empty() {
            match rustix::io::pwritev(file, parts, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    offset += len as u64;
                    IoSlice::advance_slices(&mut parts, len);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

pub(crate) fn encode_head(handle: &BlockHandle, frame: &[u8]) -> [u8; RECORD_HEAD_LEN] {
    let mut head = [0; RECORD_HEAD_LEN];
    head[..4].copy_from_slice(&RECORD_MAGIC);
    head[4..8].copy_from_slice(&(frame.len() as u32).to_be_bytes());
    head[8..].copy_from_slice(handle.as_bytes());
    head
}

/// Stops at the first torn record and returns its offset. Reads record headers only.
pub(crate) fn scan(file: &File, file_len: u64) -> io::Result<(Vec<(BlockHandle, Span)>, u64)> {
    let (mut found, mut at) = (Vec::new(), 0u64);
    let mut buffer = vec![0; SCAN_LEN];
    let (mut buffer_at, mut buffer_len) = (0u64, 0usize);
    while at + RECORD_HEAD_LEN as u64 <= file_len {
        let have = at >= buffer_at && at + RECORD_HEAD_LEN as u64 <= buffer_at + buffer_len as u64;
        if !have {
            buffer_at = at;
            buffer_len = read_up_to(file, &mut buffer, at)?;
            if buffer_len < RECORD_HEAD_LEN {
                break;
            }
        }
        let start = (at - buffer_at) as usize;
        let Some((handle, len)) = decode_head(&buffer[start..start + RECORD_HEAD_LEN]) else {
            break;
        };
        let offset = at + RECORD_HEAD_LEN as u64;
        if offset + u64::from(len) > file_len {
            break;
        }
        let Ok(offset) = u32::try_from(offset) else { break };
        found.push((handle, Span { offset, len }));
        at = u64::from(offset) + u64::from(len);
    }
    Ok((found, at))
}

fn decode_head(head: &[u8]) -> Option<(BlockHandle, u32)> {
    let (magic, rest) = head.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (handle, _) = rest.split_first_chunk::<32>()?;
    let len = u32::from_be_bytes(*len);
    (*magic == RECORD_MAGIC && len as usize <= FRAME_LEN_MAX)
        .then(|| (BlockHandle::from_bytes(*handle), len))
}

fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], at + len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

pub(crate) fn read_frame(file: &File, span: Span) -> io::Result<Vec<u8>> {
    let len = span.len as usize;
    let mut frame = Vec::with_capacity(len);
    while frame.len() < len {
        let at = u64::from(span.offset) + frame.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut frame), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    frame.truncate(len);
    Ok(frame)
}

pub(crate) fn encode_list(records: &[(BlockHandle, Span)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + records.len() * LIST_ENTRY_LEN + HASH_LEN);
    out.extend_from_slice(&LIST_MAGIC);
    out.extend_from_slice(&(records.len() as u32).to_be_bytes());
    for (handle, span) in records {
        out.extend_from_slice(handle.as_bytes());
        out.extend_from_slice(&span.offset.to_be_bytes());
        out.extend_from_slice(&span.len.to_be_bytes());
    }
    let hash = blake3::hash(&out);
    out.extend_from_slice(hash.as_bytes());
    out
}

/// `None` if the list is damaged.
pub(crate) fn decode_list(bytes: &[u8]) -> Option<Vec<(BlockHandle, Span)>> {
    let (body, hash) = bytes.split_last_chunk::<HASH_LEN>()?;
    let entries = body.strip_prefix(&LIST_MAGIC)?;
    let (count, entries) = entries.split_first_chunk::<4>()?;
    if blake3::hash(body).as_bytes() != hash
        || entries.len() != u32::from_be_bytes(*count) as usize * LIST_ENTRY_LEN
    {
        return None;
    }
    let number = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes).ok();
    entries
        .chunks_exact(LIST_ENTRY_LEN)
        .map(|entry| {
            let handle = BlockHandle::from_bytes(*entry.first_chunk()?);
            let span = Span { offset: number(&entry[32..36])?, len: number(&entry[36..])? };
            (span.len as usize <= FRAME_LEN_MAX).then_some((handle, span))
        })
        .collect()
}

pub(crate) fn exercise_list(bytes: &[u8]) {
    if let Some(records) = decode_list(bytes) {
        assert_eq!(encode_list(&records), bytes, "a list has one encoding");
    }
}

/// Fuzz entry point: a segment of any content and `len` bytes.
pub(crate) fn exercise_segment(file: &File, len: u64) -> io::Result<()> {
    let (records, end) = scan(file, len)?;
    assert!(end <= len, "a scan ends within the file");
    let mut at = 0;
    for (_, span) in &records {
        assert_eq!(
            u64::from(span.offset),
            at + RECORD_HEAD_LEN as u64,
            "records follow one another"
        );
        at = u64::from(span.offset) + u64::from(span.len);
        assert_eq!(
            read_frame(file, *span)?.len(),
            span.len as usize,
            "a record lies within the file"
        );
    }
    assert_eq!(at, end, "a scan ends with the last whole record");
    exercise_list(&encode_list(&records));
    Ok(())
}
