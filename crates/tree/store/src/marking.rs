//! Memory: one bit a record, and one page's children for each level.

use std::sync::atomic::{AtomicU64, Ordering};

use vouch_tree::{BlockHandle, FrameKind, Iv, frame, references};

use crate::frames::{Progress, ProgressFn};
use crate::index::{Entry, Index, Position};
use crate::{FrameSource, Result};

#[derive(Debug)]
pub(crate) struct Marks {
    segments: Vec<Vec<AtomicU64>>,
}

impl Marks {
    pub(crate) fn new(index: &Index) -> Self {
        let words = |len: usize| (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { segments: index.segments.iter().map(|segment| words(segment.len())).collect() }
    }

    pub(crate) fn set(&self, position: Position) -> bool {
        let bit = 1 << (position.at % 64);
        self.segments[position.segment][position.at / 64].fetch_or(bit, Ordering::Relaxed) & bit
            == 0
    }

    pub(crate) fn has(&self, position: Position) -> bool {
        self.segments[position.segment][position.at / 64].load(Ordering::Relaxed)
            >> (position.at % 64)
            & 1
            == 1
    }

    /// Marks the same handles in another index. O(marked × log).
    pub(crate) fn transfer(&self, from: &Index, to: &Index) -> Result<Self> {
        let marks = Self::new(to);
        for_each_entry(from, |position, entry| {
            if self.has(position)
                && let Some(position) = to.position(&entry.handle)?
            {
                marks.set(position);
            }
            Ok(())
        })?;
        Ok(marks)
    }
}

pub(crate) fn for_each_entry(
    index: &Index,
    mut see: impl FnMut(Position, &Entry) -> Result<()>,
) -> Result<()> {
    for (number, segment) in index.segments.iter().enumerate() {
        let mut scan = segment.scan();
        for at in 0..segment.len() {
            see(Position { segment: number, at }, &scan.entry(at)?)?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone)]
pub(crate) struct MissingFrame {
    pub(crate) kind: FrameKind,
    pub(crate) handle: BlockHandle,
    pub(crate) why: String,
}

/// Walks from a signed fsinfo to everything it needs, and verifies the metadata.
pub(crate) struct Walk<'a> {
    pub(crate) index: &'a Index,
    pub(crate) source: &'a dyn FrameSource,
    pub(crate) iv: Iv,
    pub(crate) marks: &'a Marks,
    pub(crate) progress: Option<&'a ProgressFn<'a>>,
    pub(crate) marked: u64,
}

impl Walk<'_> {
    /// Marked frames count as walked. `lack` decides whether to continue without a frame.
    pub(crate) fn mark(
        &mut self,
        fsinfo: &BlockHandle,
        mut lack: impl FnMut(MissingFrame) -> Result<()>,
    ) -> Result<()> {
        let mut stack = vec![(FrameKind::Fsinfo, *fsinfo)];
        while let Some((kind, handle)) = stack.pop() {
            let Some(position) = self.index.position(&handle)? else {
                lack(MissingFrame { kind, handle, why: "missing".to_owned() })?;
                continue;
            };
            if !self.marks.set(position) {
                continue;
            }
            self.count();
            if kind == FrameKind::Leaf {
                continue;
            }
            match self.children(kind, &handle)? {
                Ok(children) => stack.extend(children.into_iter().rev()),
                Err(why) => lack(MissingFrame { kind, handle, why })?,
            }
        }
        Ok(())
    }

    fn children(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
    ) -> Result<std::result::Result<Vec<(FrameKind, BlockHandle)>, String>> {
        let Some(bytes) = self.source.get(handle)? else { return Ok(Err("missing".to_owned())) };
        let opened = frame::open(&self.iv, handle, kind, &bytes).map_err(|error| error.to_string());
        Ok(opened.and_then(|payload| {
            references::of_payload(kind, &payload).map_err(|error| error.to_string())
        }))
    }

    fn count(&mut self) {
        self.marked += 1;
        if self.marked.is_multiple_of(PROGRESS_EVERY)
            && let Some(progress) = self.progress
        {
            progress(Progress {
                stage: "marking",
                done: self.marked,
                total: Some(self.index.len()),
            });
        }
    }
}

const PROGRESS_EVERY: u64 = 8192;
