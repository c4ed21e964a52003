//! Data and holes by SEEK_DATA, without reading holes.

use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use vouch_tree::LEAF_LEN_MAX;

use crate::error::FileError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Hole(u64),
    Data { first: u64, count: u64 },
}

#[derive(Debug)]
pub(crate) struct Extents {
    size: u64,
    leaves: u64,
    next: u64,
    data_end: u64,
}

impl Extents {
    pub(crate) const fn new(size: u64) -> Self {
        Self { size, leaves: size.div_ceil(LEAF), next: 0, data_end: 0 }
    }

    pub(crate) fn batch(
        &mut self,
        file: BorrowedFd<'_>,
        leaf_count_max: u64,
    ) -> Result<Vec<Span>, FileError> {
        let (mut spans, mut room) = (Vec::new(), leaf_count_max);
        while self.next < self.leaves && room > 0 && spans.len() < SPAN_COUNT_MAX {
            if self.next < self.data_end {
                let count = room.min(self.data_end - self.next);
                spans.push(Span::Data { first: self.next, count });
                self.next += count;
                room -= count;
                continue;
            }
            let Some((start, end)) = data_after(file, self.next * LEAF, self.size)? else {
                spans.push(Span::Hole(self.leaves - self.next));
                self.next = self.leaves;
                break;
            };
            let first = (start / LEAF).max(self.next);
            if first > self.next {
                spans.push(Span::Hole(first - self.next));
                self.next = first;
            }
            self.data_end = end.div_ceil(LEAF).clamp(first + 1, self.leaves);
        }
        Ok(spans)
    }
}

/// Without support for holes, everything is data.
fn data_after(file: BorrowedFd<'_>, at: u64, size: u64) -> Result<Option<(u64, u64)>, FileError> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(_) => return Ok(Some((at, size))),
    };
    if start >= size {
        return Ok(None);
    }
    // Reading detects a shrinking file.
    let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).clamp(start + 1, size);
    Ok(Some((start, end)))
}

const LEAF: u64 = LEAF_LEN_MAX as u64;

/// Bounds a batch in files of many small holes.
const SPAN_COUNT_MAX: usize = 4096;
