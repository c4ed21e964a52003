//! Places of all frames in a pack, from the index. 40 bytes a frame.

use std::collections::HashMap;
use std::ops::Range;

use vouch_tree::BlockHandle;
use vouch_tree_store::{RECORD_HEAD_LEN, RemoteFrame};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FramePosition {
    /// Start of the record.
    pub(crate) offset: u32,
    /// Length of the frame.
    pub(crate) len: u32,
    pub(crate) handle: BlockHandle,
}

impl FramePosition {
    pub(crate) fn record(&self) -> Range<u64> {
        let start = u64::from(self.offset);
        start..start + RECORD_HEAD_LEN as u64 + u64::from(self.len).next_multiple_of(4)
    }
}

/// Sorted by place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PackTable {
    pub(crate) len: u64,
    pub(crate) places: Vec<FramePosition>,
}

impl PackTable {
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> Range<usize> {
        let first = self.places.partition_point(|place| place.record().end <= range.start);
        let end = self.places.partition_point(|place| u64::from(place.offset) < range.end);
        first..end.max(first)
    }

    fn sort(&mut self) -> bool {
        self.places.sort_unstable_by_key(|place| place.offset);
        self.places.dedup();
        let is_apart = |pair: &[FramePosition]| pair[0].record().end <= u64::from(pair[1].offset);
        let ends_within = self.places.last().is_none_or(|last| last.record().end <= self.len);
        self.places.windows(2).all(is_apart) && ends_within
    }
}

#[derive(Debug, Default)]
pub(crate) struct TableBuilder {
    tables: HashMap<String, PackTable>,
}

impl TableBuilder {
    pub(crate) fn add(&mut self, handle: BlockHandle, frame: RemoteFrame) {
        let RemoteFrame { file, range } = frame;
        let table = self
            .tables
            .entry(file.path)
            .or_insert_with(|| PackTable { len: file.len, places: Vec::new() });
        // Packs are shorter than 2 GiB, which the manifest's decoder checks.
        let (offset, len) =
            ((range.start - RECORD_HEAD_LEN as u64) as u32, (range.end - range.start) as u32);
        table.places.push(FramePosition { offset, len, handle });
    }

    /// `None` if frames overlap.
    pub(crate) fn finish(mut self) -> Option<HashMap<String, PackTable>> {
        self.tables.values_mut().all(PackTable::sort).then_some(self.tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vouch_tree_store::RemoteFile;

    fn frame(start: u64, len: u64) -> RemoteFrame {
        RemoteFrame {
            file: RemoteFile { path: "packs/p".into(), len: 1000, is_data: true },
            range: start..start + len,
        }
    }

    fn handle(number: u8) -> BlockHandle {
        BlockHandle::from_bytes([number; 32])
    }

    #[test]
    fn ranges_find_the_frames_that_they_touch() {
        let mut builder = TableBuilder::default();
        for (number, start) in [(2, 148), (1, 40), (3, 260)] {
            builder.add(handle(number), frame(start, 98));
        }
        builder.add(handle(1), frame(40, 98));
        let table = &builder.finish().unwrap()["packs/p"];
        // Records: 32..140, 140..248, 252..360.
        for (range, found) in [
            (0..32, 0..0),
            (0..33, 0..1),
            (139..141, 0..2),
            (248..252, 2..2),
            (248..253, 2..3),
            (360..999, 3..3),
            (0..999, 0..3),
        ] {
            assert_eq!(table.overlapping(&range), found, "{range:?}");
        }
    }

    #[test]
    fn overlapping_frames_are_refused() {
        let mut builder = TableBuilder::default();
        builder.add(handle(1), frame(40, 98));
        builder.add(handle(2), frame(140, 98));
        assert!(builder.finish().is_none());
    }
}
