//! Frames of the previous revision at the same place. Another version or level of zstd compresses
//! an equal payload to other bytes, which have another handle. The old frame is kept, so that
//! mirrors and clients need not fetch it again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use vouch_tree::blob::{FANOUT, Indirect};
use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_tree::{Blob, BlobBody, BlockHandle, Content, FrameKind, PageRef};
use vouch_xdr::Xdr as _;

use crate::error::Error;
use crate::frames::Frames;
use crate::node::Node;

/// What is known of a file's previous content. Filled at the first frame that is not stored yet.
#[derive(Debug, Default)]
pub(crate) struct PreviousBlob {
    found: OnceLock<Option<Blob>>,
    last_indirect: Mutex<Option<(BlockHandle, Arc<Indirect>)>>,
    /// By the hash of their payloads.
    indirects: OnceLock<HashMap<[u8; 32], BlockHandle>>,
    misses: AtomicU32,
}

#[derive(Clone, Copy)]
pub(crate) struct PreviousFile<'a> {
    pub(crate) node: &'a Node,
    pub(crate) name: &'a [u8],
    pub(crate) blob: &'a PreviousBlob,
}

impl PreviousFile<'_> {
    pub(crate) fn put_leaf(
        &self,
        frames: &Frames<'_>,
        leaf: u64,
        payload: &[u8],
    ) -> Result<BlockHandle, Error> {
        let mut old = None;
        let put = frames.put_or_keep(FrameKind::Leaf, payload, || {
            old = match self.blob(frames)? {
                Some(blob) => self.leaf(frames, blob, leaf)?,
                None => None,
            };
            Ok(old)
        })?;
        if old.is_some_and(|old| old != put) {
            self.blob.misses.fetch_add(1, Ordering::Relaxed);
        }
        Ok(put)
    }

    pub(crate) fn put_indirect(
        &self,
        frames: &Frames<'_>,
        payload: &[u8],
    ) -> Result<BlockHandle, Error> {
        frames.put_or_keep(FrameKind::Indirect, payload, || {
            let Some(blob) = self.blob(frames)? else { return Ok(None) };
            if self.blob.indirects.get().is_none() {
                let _ = self.blob.indirects.set(indirects(frames, blob)?);
            }
            Ok(self
                .blob
                .indirects
                .get()
                .and_then(|known| known.get(blake3::hash(payload).as_bytes()))
                .copied())
        })
    }

    /// `None` also for a file that was rewritten: its old frames are read in vain.
    fn blob(&self, frames: &Frames<'_>) -> Result<Option<&Blob>, Error> {
        if self.blob.misses.load(Ordering::Relaxed) >= MISS_COUNT_MAX {
            return Ok(None);
        }
        if self.blob.found.get().is_none() {
            let inode = self.node.previous_inode(frames, self.name)?;
            let _ = self.blob.found.set(inode.and_then(|inode| match inode.content {
                Content::Regular { blob, .. } => Some(blob),
                _ => None,
            }));
        }
        Ok(self.blob.found.get().and_then(Option::as_ref))
    }

    fn leaf(
        &self,
        frames: &Frames<'_>,
        blob: &Blob,
        leaf: u64,
    ) -> Result<Option<BlockHandle>, Error> {
        let (mut handle, depth) = match blob.body {
            BlobBody::Leaf(handle) if leaf == 0 => return Ok(Some(handle)),
            BlobBody::Tree { depth, top } => (top, depth),
            _ => return Ok(None),
        };
        let mut rest = leaf;
        for depth in (1..=u32::from(depth)).rev() {
            let below = (FANOUT as u64).pow(depth - 1);
            let child = self
                .indirect(frames, handle)?
                .and_then(|page| page.child(usize::try_from(rest / below).ok()?));
            let Some(child) = child else { return Ok(None) };
            (handle, rest) = (child, rest % below);
        }
        Ok(Some(handle))
    }

    fn indirect(
        &self,
        frames: &Frames<'_>,
        handle: BlockHandle,
    ) -> Result<Option<Arc<Indirect>>, Error> {
        if let Some((last, page)) = &*self.blob.last_indirect.lock()
            && *last == handle
        {
            return Ok(Some(page.clone()));
        }
        let Some(payload) = frames.get(FrameKind::Indirect, &handle)? else { return Ok(None) };
        let Ok(page) = Indirect::from_xdr(&payload).map(Arc::new) else { return Ok(None) };
        *self.blob.last_indirect.lock() = Some((handle, page.clone()));
        Ok(Some(page))
    }
}

fn indirects(frames: &Frames<'_>, blob: &Blob) -> Result<HashMap<[u8; 32], BlockHandle>, Error> {
    let mut known = HashMap::new();
    let mut waiting = match blob.body {
        BlobBody::Tree { top, .. } => vec![top],
        _ => Vec::new(),
    };
    while let Some(handle) = waiting.pop() {
        let Some(payload) = frames.get(FrameKind::Indirect, &handle)? else { continue };
        let Ok(page) = Indirect::from_xdr(&payload) else { continue };
        if page.depth > 1 {
            waiting.extend(page.children.iter().flatten().copied());
        }
        known.insert(*blake3::hash(&payload).as_bytes(), handle);
    }
    Ok(known)
}

/// Puts a page of a directory whose previous pages are below `top`.
pub(crate) fn put_page(
    frames: &Frames<'_>,
    top: Option<PageRef>,
    kind: FrameKind,
    payload: &[u8],
) -> Result<BlockHandle, Error> {
    let Some(mut page) = top else { return frames.put(kind, payload) };
    frames.put_or_keep(kind, payload, || {
        let (height, first) = if kind == FrameKind::DirLeaf {
            let Some(entry) =
                LeafPage::from_xdr(payload).ok().and_then(|page| page.entries().first().cloned())
            else {
                return Ok(None);
            };
            (0, entry.name)
        } else {
            let Ok(own) = InteriorPage::from_xdr(payload) else { return Ok(None) };
            let Some(first) = own.children().first().map(|child| child.first.clone()) else {
                return Ok(None);
            };
            (own.height(), first)
        };
        while page.height > height {
            let Some(above) = frames.get(page.kind(), &page.handle)? else { return Ok(None) };
            let Ok(above) = InteriorPage::from_xdr(&above) else { return Ok(None) };
            match above.child_for(first.as_bytes()).and_then(|index| above.page(index)) {
                Some(below) => page = below,
                None => return Ok(None),
            }
        }
        Ok((page.height == height).then_some(page.handle))
    })
}

/// Leaves of a file that differ from the old ones before the rest counts as rewritten.
const MISS_COUNT_MAX: u32 = 64;
