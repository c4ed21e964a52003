//! An immutable file of sorted records with interpolation search. Not memory-mapped: a truncated
//! file must be an error.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vouch_tree::BlockHandle;

use crate::disk::{Disk, DiskFile};
use crate::index::{Entry, PackPosition};
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"VOUCHIDX";
const VERSION: u32 = 1;
pub(crate) const HEADER_LEN: usize = 16;
/// Handle, pack, offset, kind and length.
pub(crate) const RECORD_LEN: usize = 44;
pub(crate) const TRAILER_LEN: usize = 40;
const CHECKSUM_LEN: usize = 32;

/// Verified by its checksum.
#[derive(Debug)]
pub struct SegmentBytes(Segment);

/// Verifies a segment outside of a local database.
pub fn read_segment(path: &Path) -> Result<SegmentBytes> {
    let segment = Segment::open_within(path, 0, u64::MAX)?;
    segment.verify()?;
    Ok(SegmentBytes(segment))
}

impl SegmentBytes {
    pub fn records(&self) -> impl Iterator<Item = (BlockHandle, [u8; RECORD_LEN])> {
        let bytes = match &self.0.source {
            Source::Memory(bytes) => &bytes[HEADER_LEN..HEADER_LEN + self.0.count * RECORD_LEN],
            Source::File(..) => &[],
        };
        bytes.as_chunks::<RECORD_LEN>().0.iter().map(|record| {
            let mut handle = [0; BlockHandle::LEN];
            handle.copy_from_slice(handle_of(record));
            (BlockHandle::from_bytes(handle), *record)
        })
    }

    pub fn find(&self, handle: &BlockHandle) -> Option<[u8; RECORD_LEN]> {
        let at = self.0.find(handle).ok()??;
        let mut record = [0; RECORD_LEN];
        self.0.read_at(&mut record, offset_of(at)).ok()?;
        Some(record)
    }
}

pub(crate) const fn file_len(count: u64) -> u64 {
    count.saturating_mul(RECORD_LEN as u64).saturating_add((HEADER_LEN + TRAILER_LEN) as u64)
}

#[derive(Debug)]
pub(crate) struct Segment {
    id: u32,
    path: PathBuf,
    source: Source,
    count: usize,
}

enum Source {
    Memory(Box<[u8]>),
    /// A file and its length. A search reads two or three windows.
    File(File, u64),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(bytes) => write!(f, "Memory({} bytes)", bytes.len()),
            Self::File(file, len) => write!(f, "File({file:?}, {len} bytes)"),
        }
    }
}

impl Segment {
    /// [`Segment::verify`] checks every byte.
    pub(crate) fn open(path: &Path, id: u32) -> Result<Self> {
        Self::open_within(path, id, IN_MEMORY_LEN_MAX)
    }

    fn open_within(path: &Path, id: u32, in_memory_len_max: u64) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let len = file.metadata().map_err(Error::io("look at", path))?.len();
        if len < (HEADER_LEN + TRAILER_LEN) as u64 {
            return Err(Error::damaged(path, "not an index segment"));
        }
        let source = if len <= in_memory_len_max {
            let mut bytes = vec![0; len as usize].into_boxed_slice();
            file.read_exact_at(&mut bytes, 0).map_err(read_error(path))?;
            Source::Memory(bytes)
        } else {
            Source::File(file, len)
        };
        let mut segment = Self { id, path: path.to_owned(), source, count: 0 };
        segment.count = segment.check_form()?;
        Ok(segment)
    }

    fn check_form(&self) -> Result<usize> {
        let mut header = [0; HEADER_LEN];
        self.read_at(&mut header, 0)?;
        if header[..8] != MAGIC {
            return Err(Error::damaged(&self.path, "not an index segment"));
        }
        let version = be32(&header[8..]);
        if version != VERSION {
            return Err(Error::Version { path: self.path.clone(), found: version });
        }
        let records_len = self.file_len() - (HEADER_LEN + TRAILER_LEN) as u64;
        let mut count = [0; 8];
        self.read_at(&mut count, HEADER_LEN as u64 + records_len)?;
        if records_len != u64::from_be_bytes(count).saturating_mul(RECORD_LEN as u64) {
            return Err(Error::damaged(
                &self.path,
                "the index segment does not have the length in its header",
            ));
        }
        Ok((records_len / RECORD_LEN as u64) as usize)
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Checksum and order: 1 to 3 GB/s from the page cache.
    pub(crate) fn verify(&self) -> Result<()> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; BUFFER_LEN];
        let body_len = self.file_len() - CHECKSUM_LEN as u64;
        let mut at = 0;
        while at < body_len {
            let part = &mut buffer[..(body_len - at).min(BUFFER_LEN as u64) as usize];
            self.read_at(part, at)?;
            hasher.update(part);
            at += part.len() as u64;
        }
        let mut checksum = [0; CHECKSUM_LEN];
        self.read_at(&mut checksum, body_len)?;
        if *hasher.finalize().as_bytes() != checksum {
            return Err(Error::damaged(
                &self.path,
                "the index segment does not match its checksum",
            ));
        }
        let mut scan = self.scan();
        let mut last = None;
        for at in 0..self.count {
            let handle: [u8; BlockHandle::LEN] =
                handle_of(scan.record(at)?).try_into().expect("a record begins with a handle");
            if last.is_some_and(|last| last >= handle) {
                return Err(Error::damaged(&self.path, "the index segment is not sorted"));
            }
            last = Some(handle);
        }
        Ok(())
    }

    pub(crate) fn entry(&self, at: usize) -> Result<Entry> {
        let mut record = [0; RECORD_LEN];
        self.read_at(&mut record, offset_of(at))?;
        self.decode(at, &record)
    }

    pub(crate) fn scan(&self) -> Scan<'_> {
        Scan { segment: self, first: 0, records: Vec::new() }
    }

    fn decode(&self, at: usize, bytes: &[u8]) -> Result<Entry> {
        let Some(place) = PackPosition::from_record(bytes) else {
            return Err(Error::damaged(
                &self.path,
                format!("record {at} has the unknown kind {}", bytes[40]),
            ));
        };
        let mut handle = [0; BlockHandle::LEN];
        handle.copy_from_slice(handle_of(bytes));
        Ok(Entry { handle: BlockHandle::from_bytes(handle), place })
    }

    /// About log log n probes for uniform handles, at worst a constant plus log n.
    pub(crate) fn find(&self, handle: &BlockHandle) -> Result<Option<usize>> {
        let wanted = &handle.as_bytes()[..];
        let key = handle.prefix();
        let (mut low, mut high) = (0, self.count);
        let (mut low_key, mut high_key) = (0_u64, u64::MAX);
        let mut probes = 0;
        let mut buffer = [0; WINDOW_COUNT * RECORD_LEN];
        while low < high {
            let span = high - low;
            let at = if probes < INTERPOLATED_PROBES_MAX {
                let share = key.saturating_sub(low_key) as f64
                    / (high_key.saturating_sub(low_key)).max(1) as f64;
                low + ((share * span as f64) as usize).min(span - 1)
            } else {
                low + span / 2
            };
            probes += 1;
            let (first, window) = self.around(at, low, high, &mut buffer)?;
            let count = window.len() / RECORD_LEN;
            let handle_at = |i: usize| handle_of(&window[i * RECORD_LEN..]);
            let (mut from, mut to) = (0, count);
            while from < to {
                let middle = from + (to - from) / 2;
                if handle_at(middle) < wanted { from = middle + 1 } else { to = middle }
            }
            if from == count {
                (low, low_key) = (first + count, be64(handle_at(count - 1)));
            } else if handle_at(from) == wanted {
                return Ok(Some(first + from));
            } else if from == 0 {
                (high, high_key) = (first, be64(handle_at(0)));
            } else {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Also returns the first record's position. One record from memory, a window from a file.
    fn around<'a>(
        &'a self,
        at: usize,
        low: usize,
        high: usize,
        buffer: &'a mut [u8],
    ) -> Result<(usize, &'a [u8])> {
        match &self.source {
            Source::Memory(bytes) => Ok((at, &bytes[HEADER_LEN + at * RECORD_LEN..][..RECORD_LEN])),
            Source::File(..) => {
                let first = at
                    .saturating_sub(WINDOW_COUNT / 2)
                    .min(high.saturating_sub(WINDOW_COUNT))
                    .max(low);
                let window = &mut buffer[..(high - first).min(WINDOW_COUNT) * RECORD_LEN];
                self.read_at(window, offset_of(first))?;
                Ok((first, window))
            }
        }
    }

    fn file_len(&self) -> u64 {
        match &self.source {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::File(_, len) => *len,
        }
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        match &self.source {
            Source::Memory(bytes) => {
                out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
                Ok(())
            }
            Source::File(file, _) => {
                file.read_exact_at(out, offset).map_err(read_error(&self.path))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Scan<'a> {
    segment: &'a Segment,
    first: usize,
    records: Vec<u8>,
}

impl Scan<'_> {
    pub(crate) fn entry(&mut self, at: usize) -> Result<Entry> {
        let segment = self.segment;
        segment.decode(at, self.record(at)?)
    }

    fn record(&mut self, at: usize) -> Result<&[u8]> {
        if at < self.first || at >= self.first + self.records.len() / RECORD_LEN {
            let count = (self.segment.count - at).min(SCAN_COUNT);
            self.records.clear();
            self.records.resize(count * RECORD_LEN, 0);
            if let Err(error) = self.segment.read_at(&mut self.records, offset_of(at)) {
                self.records.clear();
                return Err(error);
            }
            self.first = at;
        }
        Ok(&self.records[(at - self.first) * RECORD_LEN..][..RECORD_LEN])
    }
}

fn offset_of(at: usize) -> u64 {
    HEADER_LEN as u64 + at as u64 * RECORD_LEN as u64
}

fn handle_of(record: &[u8]) -> &[u8] {
    &record[..BlockHandle::LEN]
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::damaged(
            path,
            "the index segment ends early: it was cut short while it was in use",
        ),
        _ => Error::io("read", path)(error),
    }
}

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
        Ok(Self {
            path: path.to_owned(),
            file,
            buffer,
            hasher: blake3::Hasher::new(),
            count: 0,
            last: None,
        })
    }

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

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the file, which the caller synchronises.
    pub(crate) fn finish(mut self) -> Result<Arc<dyn DiskFile>> {
        self.buffer.extend_from_slice(&self.count.to_be_bytes());
        self.flush()?;
        self.buffer.extend_from_slice(self.hasher.finalize().as_bytes());
        self.flush()?;
        Ok(self.file)
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
    u64::from_be_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ])
}

/// The kind is in the upper byte.
pub(crate) const LEN_MASK: u32 = 0x00ff_ffff;
/// Uniform handles need about 4; chosen handles fall back to binary search.
const INTERPOLATED_PROBES_MAX: usize = 12;
const BUFFER_LEN: usize = 256 << 10;
/// 380,000 records, some 50 GB of large files.
const IN_MEMORY_LEN_MAX: u64 = 16 << 20;
/// 4 KiB: after the first read, the wanted record is usually among them.
const WINDOW_COUNT: usize = 93;
const SCAN_COUNT: usize = 4096;

#[cfg(test)]
mod tests {
    use vouch_tree::FrameKind;

    use super::*;
    use crate::disk::SystemDisk;

    fn made(dir: &Path, count: u32) -> (PathBuf, Vec<BlockHandle>) {
        let mut handles: Vec<_> = (0..count)
            .map(|n| BlockHandle::from_bytes(*blake3::hash(&n.to_be_bytes()).as_bytes()))
            .collect();
        handles.sort_unstable();
        let path = dir.join("00000000.segment");
        let mut out = SegmentWriter::create(&SystemDisk, &path).unwrap();
        for (offset, handle) in handles.iter().enumerate() {
            let place =
                PackPosition { pack: 1, offset: offset as u32, len: 9, kind: FrameKind::Leaf };
            out.push(&Entry { handle: *handle, place }).unwrap();
        }
        out.finish().unwrap();
        (path, handles)
    }

    #[test]
    fn search_in_file_agrees_with_search_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        for count in [1, 2, 92, 93, 94, 500, 20_000] {
            let (path, handles) = made(dir.path(), count);
            for in_memory_len_max in [0, u64::MAX] {
                let segment = Segment::open_within(&path, 0, in_memory_len_max).unwrap();
                segment.verify().unwrap();
                for (at, handle) in handles.iter().enumerate() {
                    assert_eq!(segment.find(handle).unwrap(), Some(at));
                    assert_eq!(segment.entry(at).unwrap().place.offset as usize, at);
                    let mut missing = *handle.as_bytes();
                    missing[31] ^= 1;
                    assert_eq!(segment.find(&BlockHandle::from_bytes(missing)).unwrap(), None);
                }
                for extreme in [[0; 32], [255; 32]] {
                    assert_eq!(segment.find(&BlockHandle::from_bytes(extreme)).unwrap(), None);
                }
            }
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn truncated_segment_is_an_error_not_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let (path, handles) = made(dir.path(), 5000);
        let [read, held] = [0, u64::MAX].map(|max| Segment::open_within(&path, 0, max).unwrap());
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert!(matches!(read.find(&handles[70]), Err(Error::Damaged { .. })));
        assert!(
            matches!(read.entry(70), Err(Error::Damaged { .. }))
                && matches!(read.verify(), Err(Error::Damaged { .. }))
        );
        assert!(matches!(read.scan().entry(70), Err(Error::Damaged { .. })));
        assert_eq!(held.find(&handles[70]).unwrap(), Some(70));
        assert!(matches!(Segment::open(&path, 0), Err(Error::Damaged { .. })));
    }
}
