//! Subtrees that the committed revision has need no visit. Other frames in the database prove
//! nothing about their children: a killed pull leaves parents without children.

use std::sync::Arc;

use bytes::Bytes;
use vouch_tree::blob::Indirect;
use vouch_tree::{BlockHandle, Content, FrameKind, Inode, PageRef};
use vouch_tree_store::{FrameSource, Writer};

use crate::frame::Frame;
use crate::memory_cache::{MemoryCache, TreeNumber};
use crate::{Error, Result};

const PAGES_BYTES_MAX: u64 = 32 << 20;

pub(crate) struct CommittedRevision {
    writer: Arc<Writer>,
    pages: MemoryCache,
}

impl CommittedRevision {
    pub(crate) fn new(writer: Arc<Writer>) -> Self {
        Self { writer, pages: MemoryCache::new(PAGES_BYTES_MAX) }
    }

    pub(crate) fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Inode>> {
        let Some(mut page) = top_page(dir) else { return Ok(None) };
        loop {
            match self.frame(page.kind(), &page.handle)? {
                Some(Frame::DirLeaf(leaf)) => {
                    return Ok(leaf.find(name).map(|entry| entry.inode.clone()));
                }
                Some(Frame::DirInterior(interior)) => {
                    match interior.child_for(name).and_then(|i| interior.page(i)) {
                        Some(next) if next.height < page.height => page = next,
                        _ => return Ok(None),
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    pub(crate) fn has_page(&self, dir: &Inode, first: &[u8], wanted: &PageRef) -> Result<bool> {
        let Some(mut page) = top_page(dir) else { return Ok(false) };
        while page.height > wanted.height {
            let Some(Frame::DirInterior(interior)) = self.frame(page.kind(), &page.handle)? else {
                return Ok(false);
            };
            match interior.child_for(first).and_then(|i| interior.page(i)) {
                Some(next) if next.height < page.height => page = next,
                _ => return Ok(false),
            }
        }
        Ok(page == *wanted)
    }

    pub(crate) fn indirect(&self, handle: &BlockHandle) -> Result<Option<Arc<Indirect>>> {
        Ok(match self.frame(FrameKind::Indirect, handle)? {
            Some(Frame::Indirect(page)) => Some(page),
            _ => None,
        })
    }

    fn frame(&self, kind: FrameKind, handle: &BlockHandle) -> Result<Option<Frame>> {
        const COMMITTED: TreeNumber = TreeNumber(0);
        if let Some(found) = self.pages.get(COMMITTED, kind, handle) {
            return found.map(Some);
        }
        let Some(stored) = self.writer.get(handle)? else { return Ok(None) };
        vouch_tree::frame::verify(&self.writer.iv(), handle, &stored)
            .map_err(|e| Error::frame(handle, e))?;
        let frame = Frame::decode(kind, handle, &Bytes::from(stored))?;
        self.pages.insert(COMMITTED, handle, frame.clone());
        Ok(Some(frame))
    }
}

const fn top_page(dir: &Inode) -> Option<PageRef> {
    match &dir.content {
        Content::Directory { top, .. } => *top,
        _ => None,
    }
}
