//! Segments, newest last: look-ups, merge rule, streaming merges. [`crate::commit`] has the files.

use std::sync::Arc;

use vouch_tree::{BlockHandle, FrameKind};

use crate::Result;
use crate::segment::{LEN_MASK, Scan, Segment, SegmentWriter};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackPosition {
    pub(crate) pack: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) kind: FrameKind,
}

impl PackPosition {
    /// `None` if the kind is unknown.
    pub(crate) fn from_record(record: &[u8]) -> Option<PackPosition> {
        let be32 = |at: usize| {
            u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
        };
        let kind = FrameKind::from_byte(record[40])?;
        Some(PackPosition { pack: be32(32), offset: be32(36), len: be32(40) & LEN_MASK, kind })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) handle: BlockHandle,
    pub(crate) place: PackPosition,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    pub(crate) segments: Vec<Arc<Segment>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) segment: usize,
    pub(crate) at: usize,
}

impl Index {
    pub(crate) fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        Ok(self.position(handle)?.is_some())
    }

    pub(crate) fn find(&self, handle: &BlockHandle) -> Result<Option<PackPosition>> {
        self.position(handle)?.map(|position| Ok(self.entry(position)?.place)).transpose()
    }

    pub(crate) fn position(&self, handle: &BlockHandle) -> Result<Option<Position>> {
        for (segment, s) in self.segments.iter().enumerate().rev() {
            if let Some(at) = s.find(handle)? {
                return Ok(Some(Position { segment, at }));
            }
        }
        Ok(None)
    }

    pub(crate) fn entry(&self, position: Position) -> Result<Entry> {
        self.segments[position.segment].entry(position.at)
    }

    pub(crate) fn len(&self) -> u64 {
        self.segments.iter().map(|s| s.len() as u64).sum()
    }

    /// Keeps segments that have [`TIER_RATIO`] times the sum of later ones: a record is rewritten
    /// O(log n) times.
    pub(crate) fn merge_from(&self, from: usize, fresh: usize) -> usize {
        let mut keep = self.segments.len();
        let mut sum = fresh;
        while keep > from {
            let len = self.segments[keep - 1].len();
            if len >= sum.saturating_mul(TIER_RATIO) && len >= ALWAYS_MERGED_BELOW {
                break;
            }
            sum += len;
            keep -= 1;
        }
        keep
    }
}

#[derive(Debug)]
pub(crate) enum Run<'a> {
    Segment(&'a Segment),
    Fresh(&'a [Entry]),
}

enum RunReader<'a> {
    Segment(usize, Scan<'a>),
    Fresh(&'a [Entry]),
}

impl<'a> RunReader<'a> {
    fn new(run: &Run<'a>) -> Self {
        match run {
            Run::Segment(segment) => Self::Segment(segment.len(), segment.scan()),
            Run::Fresh(entries) => Self::Fresh(entries),
        }
    }

    fn entry(&mut self, at: usize) -> Result<Option<Entry>> {
        match self {
            Self::Segment(len, scan) => (at < *len).then(|| scan.entry(at)).transpose(),
            Self::Fresh(entries) => Ok(entries.get(at).copied()),
        }
    }
}

/// `runs` are sorted, oldest first. `keep` gets the run, the position in it and the record; of
/// equal kept handles the newest is written.
pub(crate) fn merge(
    runs: &[Run<'_>],
    out: &mut SegmentWriter,
    mut keep: impl FnMut(usize, usize, &Entry) -> Result<bool>,
) -> Result<()> {
    let mut readers: Vec<_> = runs.iter().map(RunReader::new).collect();
    let mut next = |run: usize, at: &mut usize| -> Result<Option<Entry>> {
        while let Some(entry) = readers[run].entry(*at)? {
            *at += 1;
            if keep(run, *at - 1, &entry)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    };
    let mut at = vec![0; runs.len()];
    let mut heads = Vec::with_capacity(runs.len());
    for (run, at) in at.iter_mut().enumerate() {
        heads.push(next(run, at)?);
    }
    while let Some(least) = heads.iter().flatten().map(|entry| entry.handle).min() {
        let mut newest = None;
        for run in 0..runs.len() {
            if heads[run].is_some_and(|entry| entry.handle == least) {
                newest = heads[run];
                heads[run] = next(run, &mut at[run])?;
            }
        }
        if let Some(entry) = newest {
            out.push(&entry)?;
        }
    }
    Ok(())
}

/// A failing look-up asks every segment: a billion records are in at most 10.
const TIER_RATIO: usize = 4;
/// Merging smaller segments costs less than another file.
const ALWAYS_MERGED_BELOW: usize = 4096;
