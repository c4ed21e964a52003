//! Read-ahead among the files and directories of one directory, for programs that open many small ones.

use std::sync::Arc;

use vouch_tree::{BlobBody, BlockHandle, Content, DirEntry, FrameKind, Inode};

use crate::Tree;
use crate::tree::PAGE_LEN_EXPECTED;

const NEIGHBOURS_MAX: usize = 32;
const LEN_MAX: u64 = 1 << 20;

impl Tree {
    /// Call it when the first frame of `name` in `dir` is not in a local cache. Neighbours whose
    /// frames are in memory show that a program reads this directory: fetches twice as many more, the
    /// nearest first. O(entries of a directory page).
    pub fn read_ahead_beside(self: &Arc<Self>, dir: &Inode, name: &[u8]) {
        let Some(Ok(Some(entry))) = self.try_lookup(dir, name) else { return };
        let (entries, index) = entry.within_page();
        let frames = neighbours(entries, index, |handle| self.is_in_memory(handle));
        if !frames.is_empty() {
            self.prefetch(frames, PAGE_LEN_EXPECTED);
        }
    }
}

fn neighbours(
    entries: &[DirEntry],
    index: usize,
    is_in_memory: impl Fn(&BlockHandle) -> bool,
) -> Vec<(FrameKind, BlockHandle)> {
    let Some(wanted) = entries.get(index).and_then(|entry| first_frame(&entry.inode)) else {
        return Vec::new();
    };
    let nearest = (1..entries.len())
        .flat_map(|distance| [index.checked_add(distance), index.checked_sub(distance)])
        .flatten()
        .filter_map(|at| entries.get(at).and_then(|entry| first_frame(&entry.inode)))
        .filter(|frame| frame.kind == wanted.kind);
    let (read, missing): (Vec<_>, Vec<_>) = nearest.partition(|frame| is_in_memory(&frame.handle));
    let mut len = wanted.len;
    missing
        .into_iter()
        .take((2 * read.len()).min(NEIGHBOURS_MAX))
        .take_while(|frame| {
            len += frame.len;
            len <= LEN_MAX
        })
        .map(|frame| (frame.kind, frame.handle))
        .collect()
}

struct FirstFrame {
    kind: FrameKind,
    handle: BlockHandle,
    len: u64,
}

/// `None`: the inode has all content.
fn first_frame(inode: &Inode) -> Option<FirstFrame> {
    let page_len = PAGE_LEN_EXPECTED as u64;
    let (kind, handle, len) = match &inode.content {
        Content::Directory { top: Some(page), .. } => (page.kind(), page.handle, page_len),
        Content::Regular { blob, .. } => match &blob.body {
            BlobBody::Leaf(handle) => (FrameKind::Leaf, *handle, blob.size),
            BlobBody::Tree { top, .. } => (FrameKind::Indirect, *top, page_len),
            BlobBody::Inline(_) | BlobBody::Hole => return None,
        },
        _ => return None,
    };
    Some(FirstFrame { kind, handle, len })
}
