//! Locates frames behind a web server or in a bucket: file and byte range. Reads nothing itself.

use std::ops::Range;
use std::path::Path;

use vouch_tree::{BlockHandle, HostId, Iv};

use crate::index::PackPosition;
use crate::layout::PackClass;
use crate::manifest::{MAGIC, Manifest};
use crate::segment::{HEADER_LEN, RECORD_LEN, TRAILER_LEN, file_len};
use crate::{Error, Result};

#[derive(Debug)]
pub struct RemoteView {
    manifest: Manifest,
    packs: Vec<(u32, PackClass, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RemoteFile {
    /// Path below the database's directory.
    pub path: String,
    pub len: u64,
    /// The file has leaves of file content, not metadata or index.
    pub is_data: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFrame {
    pub file: RemoteFile,
    pub range: Range<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteSearch {
    Found([u8; RECORD_LEN]),
    Missing,
    /// Read these bytes and search again.
    Read(Range<u64>),
}

impl RemoteView {
    /// `bytes`: content of the file `manifest`.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let manifest = Manifest::from_bytes(bytes, Path::new(Self::MANIFEST))?;
        let mut packs: Vec<_> =
            manifest.packs.iter().map(|pack| (pack.id, pack.class, pack.len)).collect();
        packs.sort_unstable_by_key(|(id, ..)| *id);
        Ok(Self { manifest, packs })
    }

    pub const MANIFEST: &str = "manifest";
    pub const MANIFEST_MAGIC: &[u8] = &MAGIC;

    pub fn hostid(&self) -> &HostId {
        &self.manifest.hostid
    }

    pub fn iv(&self) -> &Iv {
        &self.manifest.iv
    }

    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// The newest signed fsinfo.
    pub fn head(&self) -> Option<&[u8]> {
        self.manifest.head.as_deref()
    }

    pub fn statements(&self) -> &[Vec<u8>] {
        &self.manifest.statements
    }

    /// Frames that a new client needs next.
    pub fn companions(&self) -> &[BlockHandle] {
        &self.manifest.companions
    }

    /// Later generations only have segments of this number or higher.
    pub fn next_segment(&self) -> u32 {
        self.manifest.next_segment
    }

    /// Newest first. The first that has a handle counts.
    pub fn segments(&self) -> Vec<RemoteFile> {
        let file = |id: u32, count: u64| RemoteFile {
            path: format!("index/{id:08x}.segment"),
            len: file_len(count),
            is_data: false,
        };
        self.manifest.segments.iter().rev().map(|segment| file(segment.id, segment.count)).collect()
    }

    /// Handles are uniform, so the position is known up to some standard deviations.
    pub fn first_guess(segment: &RemoteFile, handle: &BlockHandle) -> Range<u64> {
        let count = count_of(segment);
        let margin = 2 * count.isqrt() + 16;
        let position = ((u128::from(handle.prefix()) * u128::from(count)) >> 64) as u64;
        bytes_of(position.saturating_sub(margin)..(position + margin).min(count))
    }

    /// `range`: from [`RemoteView::first_guess`] or [`RemoteSearch::Read`].
    pub fn search(
        segment: &RemoteFile,
        range: &Range<u64>,
        bytes: &[u8],
        handle: &BlockHandle,
    ) -> Result<RemoteSearch> {
        let count = count_of(segment);
        let first = (range.start.saturating_sub(HEADER_LEN as u64)) / RECORD_LEN as u64;
        let records = bytes.as_chunks::<RECORD_LEN>().0;
        if records.is_empty() || bytes_of(first..first + records.len() as u64) != *range {
            return if count == 0 {
                Ok(RemoteSearch::Missing)
            } else {
                Err(Error::damaged(Path::new(&segment.path), "the segment is cut"))
            };
        }
        let at = match records
            .binary_search_by(|record| record[..BlockHandle::LEN].cmp(handle.as_bytes()))
        {
            Ok(at) => return Ok(RemoteSearch::Found(records[at])),
            Err(at) => at,
        };
        let end = first + records.len() as u64;
        let wider = 4 * records.len() as u64;
        Ok(if at == 0 && first > 0 {
            RemoteSearch::Read(bytes_of(first.saturating_sub(wider)..first))
        } else if at == records.len() && end < count {
            RemoteSearch::Read(bytes_of(end..(end + wider).min(count)))
        } else {
            RemoteSearch::Missing
        })
    }

    /// Checks the place against the pack's length.
    pub fn frame(&self, record: &[u8; RECORD_LEN]) -> Result<RemoteFrame> {
        let place = PackPosition::from_record(record.as_slice());
        let found = place.and_then(|place| {
            let at = self.packs.binary_search_by_key(&place.pack, |(id, ..)| *id).ok()?;
            let (id, class, len) = self.packs[at];
            let start = u64::from(place.offset) + RECORD_HEADER_LEN;
            let range = start..start + u64::from(place.len);
            let path = format!("packs/{}-{id:08x}.pack", class.letter());
            (range.end <= len).then(|| RemoteFrame {
                file: RemoteFile { path, len, is_data: class == PackClass::Data },
                range,
            })
        });
        found.ok_or_else(|| {
            Error::damaged(Path::new("index"), "a record leads to no frame of the manifest's packs")
        })
    }
}

fn count_of(segment: &RemoteFile) -> u64 {
    segment.len.saturating_sub((HEADER_LEN + TRAILER_LEN) as u64) / RECORD_LEN as u64
}

fn bytes_of(records: Range<u64>) -> Range<u64> {
    let offset = |at: u64| HEADER_LEN as u64 + at * RECORD_LEN as u64;
    offset(records.start)..offset(records.end)
}

const RECORD_HEADER_LEN: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u64) -> BlockHandle {
        BlockHandle::from_bytes(*blake3::hash(&number.to_be_bytes()).as_bytes())
    }

    fn segment(count: u64) -> (Vec<u8>, RemoteFile) {
        let mut handles: Vec<_> = (0..count).map(|number| handle(2 * number)).collect();
        handles.sort_unstable();
        let mut bytes = vec![0; HEADER_LEN];
        for (at, handle) in handles.iter().enumerate() {
            bytes.extend_from_slice(handle.as_bytes());
            bytes.extend_from_slice(&7u32.to_be_bytes());
            bytes.extend_from_slice(&(at as u32).to_be_bytes());
            bytes.extend_from_slice(&[0, 0, 0, 1]);
        }
        let len = bytes.len() as u64 + TRAILER_LEN as u64;
        (bytes, RemoteFile { path: "index/00000001.segment".into(), len, is_data: false })
    }

    fn find(bytes: &[u8], file: &RemoteFile, handle: &BlockHandle) -> (bool, usize) {
        let (mut range, mut reads) = (RemoteView::first_guess(file, handle), 1);
        loop {
            let part = &bytes[range.start as usize..range.end as usize];
            match RemoteView::search(file, &range, part, handle).unwrap() {
                RemoteSearch::Found(record) => return (record[..32] == *handle.as_bytes(), reads),
                RemoteSearch::Missing => return (false, reads),
                RemoteSearch::Read(next) => (range, reads) = (next, reads + 1),
            }
        }
    }

    #[test]
    fn every_handle_is_found_mostly_at_the_first_guess() {
        for count in [1, 2, 100, 20_000] {
            let (bytes, file) = segment(count);
            let mut reads = 0;
            for number in 0..count {
                let (found, read) = find(&bytes, &file, &handle(2 * number));
                assert!(found, "handle {number} of {count}");
                assert!(
                    !find(&bytes, &file, &handle(2 * number + 1)).0,
                    "absent handle {number} of {count}"
                );
                reads += read;
            }
            assert!(reads as u64 <= count + count / 100 + 1, "{reads} reads for {count} handles");
        }
        let (bytes, file) = segment(0);
        assert!(!find(&bytes, &file, &handle(1)).0);
    }

    #[test]
    fn cut_bytes_are_an_error() {
        let (bytes, file) = segment(1000);
        let range = RemoteView::first_guess(&file, &handle(2));
        let part = &bytes[range.start as usize..range.end as usize];
        for cut in [0, 1, RECORD_LEN, part.len() - 1] {
            assert!(
                RemoteView::search(&file, &range, &part[..cut], &handle(2)).is_err(),
                "{cut} bytes"
            );
        }
    }
}
