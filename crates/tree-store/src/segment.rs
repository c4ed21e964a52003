//! One index segment: an immutable file of sorted records, mapped into memory and searched by interpolation.
//!
//! Owns the file's bytes; lacks all knowledge of which segments are live ([`crate::index`]).

use std::fs::File;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use vouch_tree::{BlockHandle, FrameKind};

use crate::disk::{Disk, DiskFile};
use crate::index::{Entry, Place};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"VOUCHIDX";
const VERSION: u32 = 1;
/// Magic, version, four zero bytes.
const HEADER_LEN: usize = 16;
/// Handle, pack, offset, kind and length.
pub(crate) const RECORD_LEN: usize = 44;
/// Count and checksum.
const TRAILER_LEN: usize = 40;

/// A segment that is open for searching.
#[derive(Debug)]
pub(crate) struct Segment {
    id: u32,
    path: PathBuf,
    map: Mmap,
    count: usize,
}

impl Segment {
    /// Maps a segment. Checks its form in O(1); [`Segment::verify`] checks every byte.
    pub(crate) fn open(path: &Path, id: u32) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        #[allow(unsafe_code, reason = "a memory map is the one way to search a file without a system call a probe")]
        // SAFETY: a segment is written once, by the one writer, before anybody learns its name from the manifest or from
        // that writer; from then on it is only ever unlinked, never changed or truncated, so the mapped bytes stay as they
        // are. The database belongs to the user that runs us: who can truncate its files can as well replace the program.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", path))?;
        let count = Self::check_form(&map, path)?;
        Ok(Self { id, path: path.to_owned(), map, count })
    }

    fn check_form(bytes: &[u8], path: &Path) -> Result<usize> {
        if bytes.len() < HEADER_LEN + TRAILER_LEN || bytes[..8] != MAGIC {
            return Err(Error::damaged(path, "this is no index segment"));
        }
        let version = be32(&bytes[8..]);
        if version != VERSION {
            return Err(Error::Version { path: path.to_owned(), found: version });
        }
        let records_len = bytes.len() - HEADER_LEN - TRAILER_LEN;
        let count = be64(&bytes[HEADER_LEN + records_len..]);
        if records_len as u64 != count.saturating_mul(RECORD_LEN as u64) {
            return Err(Error::damaged(path, "the index segment has not the length that it names"));
        }
        Ok(records_len / RECORD_LEN)
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// How many records it has.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Checks every byte against the checksum, and the order: 1 to 3 GB/s.
    pub(crate) fn verify(&self) -> Result<()> {
        let (body, checksum) = self.map.split_at(self.map.len() - 32);
        if blake3::hash(body).as_bytes()[..] != *checksum {
            return Err(Error::damaged(&self.path, "the index segment does not match its checksum"));
        }
        if !(1..self.count).all(|at| self.handle_bytes(at - 1) < self.handle_bytes(at)) {
            return Err(Error::damaged(&self.path, "the index segment is not sorted"));
        }
        Ok(())
    }

    /// The record at a position below [`Segment::len`].
    pub(crate) fn entry(&self, at: usize) -> Result<Entry> {
        let bytes = self.record(at);
        let Some(kind) = FrameKind::from_byte(bytes[40]) else {
            return Err(Error::damaged(&self.path, format!("record {at} has the unknown kind {}", bytes[40])));
        };
        let mut handle = [0; BlockHandle::LEN];
        handle.copy_from_slice(&bytes[..32]);
        let len = be32(&bytes[40..]) & LEN_MASK;
        let place = Place { pack: be32(&bytes[32..]), offset: be32(&bytes[36..]), len, kind };
        Ok(Entry { handle: BlockHandle::from_bytes(handle), place })
    }

    /// The position of a handle. About log log n probes, since handles are uniform; never more than some and log n.
    pub(crate) fn find(&self, handle: &BlockHandle) -> Option<usize> {
        let wanted = handle.as_bytes();
        let key = handle.prefix();
        let (mut low, mut high) = (0, self.count);
        let (mut low_key, mut high_key) = (0_u64, u64::MAX);
        let mut probes = 0;
        while low < high {
            let span = high - low;
            let at = if probes < INTERPOLATED_PROBES_MAX {
                let share = key.saturating_sub(low_key) as f64 / (high_key.saturating_sub(low_key)).max(1) as f64;
                low + ((share * span as f64) as usize).min(span - 1)
            } else {
                low + span / 2
            };
            probes += 1;
            let found = self.handle_bytes(at);
            match found.cmp(&wanted[..]) {
                std::cmp::Ordering::Equal => return Some(at),
                std::cmp::Ordering::Less => (low, low_key) = (at + 1, be64(found)),
                std::cmp::Ordering::Greater => (high, high_key) = (at, be64(found)),
            }
        }
        None
    }

    fn handle_bytes(&self, at: usize) -> &[u8] {
        &self.record(at)[..BlockHandle::LEN]
    }

    fn record(&self, at: usize) -> &[u8] {
        &self.map[HEADER_LEN + at * RECORD_LEN..][..RECORD_LEN]
    }
}

/// Writes a segment front to back.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
    count: u64,
    last: Option<BlockHandle>,
}

impl SegmentWriter {
    pub(crate) fn create(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let file = disk.create(path).map_err(Error::io("create", path))?;
        let mut buffer = Vec::with_capacity(BUFFER_LEN + RECORD_LEN);
        buffer.extend_from_slice(&MAGIC);
        buffer.extend_from_slice(&VERSION.to_be_bytes());
        buffer.extend_from_slice(&[0; 4]);
        Ok(Self { path: path.to_owned(), file, buffer, hasher: blake3::Hasher::new(), count: 0, last: None })
    }

    /// Adds a record; they come in the order of their handles, each once.
    pub(crate) fn push(&mut self, entry: &Entry) -> Result<()> {
        assert!(self.last.is_none_or(|last| last < entry.handle), "segments are written in order");
        self.last = Some(entry.handle);
        self.buffer.extend_from_slice(entry.handle.as_bytes());
        let place = &entry.place;
        assert!(place.len <= LEN_MASK, "frames are far shorter than 16 MiB");
        for word in [place.pack, place.offset, (place.kind as u32) << 24 | place.len] {
            self.buffer.extend_from_slice(&word.to_be_bytes());
        }
        self.count += 1;
        if self.buffer.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    /// How many records it has so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Writes the trailer; durable when `durable` is asked for.
    pub(crate) fn finish(mut self, durable: bool) -> Result<()> {
        self.buffer.extend_from_slice(&self.count.to_be_bytes());
        self.flush()?;
        self.buffer.extend_from_slice(self.hasher.finalize().as_bytes());
        self.flush()?;
        if durable {
            self.file.sync().map_err(Error::io("sync", &self.path))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = mem::take(&mut self.buffer);
        self.hasher.update(&buffer);
        self.file.append(&[&buffer]).map_err(Error::io("write", &self.path))?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// The kind takes the upper byte of the length's word.
const LEN_MASK: u32 = 0x00ff_ffff;
/// Uniform handles need about 4; who could choose handles at will would still meet a binary search.
const INTERPOLATED_PROBES_MAX: usize = 12;
const BUFFER_LEN: usize = 256 << 10;
