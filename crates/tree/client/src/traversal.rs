use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use vouch_tree::directory::Child;
use vouch_tree::{Blob, BlobBody, BlockHandle, Content, FrameKind, Inode, LEAF_LEN_MAX};

use crate::frame::Frame;
use crate::replica::{FrameRequest, Priority};
use crate::tree::PAGE_LEN_EXPECTED;
use crate::{Error, ErrorClass, Result, Tree};

const FRAMES_IN_FLIGHT_MAX: usize = 512;

const BLOCKING_MAX: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct PendingFrame<C> {
    pub(crate) kind: FrameKind,
    pub(crate) handle: BlockHandle,
    pub(crate) len_expected: usize,
    pub(crate) context: C,
}

impl<C> PendingFrame<C> {
    pub(crate) const fn page(kind: FrameKind, handle: BlockHandle, context: C) -> Self {
        Self { kind, handle, len_expected: PAGE_LEN_EXPECTED, context }
    }

    pub(crate) fn blob(blob: &Blob, context: C) -> Option<Self> {
        match &blob.body {
            BlobBody::Inline(_) | BlobBody::Hole => None,
            BlobBody::Leaf(handle) => Some(Self {
                kind: FrameKind::Leaf,
                handle: *handle,
                len_expected: blob.size as usize,
                context,
            }),
            BlobBody::Tree { top, .. } => Some(Self::page(FrameKind::Indirect, *top, context)),
        }
    }

    pub(crate) fn directory(inode: &Inode, context: C) -> Option<Self> {
        match &inode.content {
            Content::Directory { top: Some(page), .. } => {
                Some(Self::page(page.kind(), page.handle, context))
            }
            _ => None,
        }
    }

    pub(crate) const fn indirect_child(kind: FrameKind, handle: BlockHandle, context: C) -> Self {
        let len_expected =
            if matches!(kind, FrameKind::Leaf) { LEAF_LEN_MAX } else { PAGE_LEN_EXPECTED };
        Self { kind, handle, len_expected, context }
    }

    pub(crate) const fn page_child(child: &Child, height: u8, context: C) -> Self {
        let kind = if height == 1 { FrameKind::DirLeaf } else { FrameKind::DirInterior };
        Self::page(kind, child.handle, context)
    }
}

/// All methods may block; several run at a time.
pub(crate) trait Visitor: Send + Sync + 'static {
    type Context: Send + Sync + 'static;

    /// Hashes are verified in any case.
    const DECODES_LEAVES: bool;

    fn stored_frame(&self, work: &PendingFrame<Self::Context>) -> Result<Option<Bytes>>;

    fn fetched(&self, work: &PendingFrame<Self::Context>, stored: &Bytes) -> Result<()>;

    /// Sorted in the order of visits.
    fn children(
        &self,
        work: &PendingFrame<Self::Context>,
        frame: &Frame,
    ) -> Result<Vec<PendingFrame<Self::Context>>>;

    /// The frame cannot be fetched or decoded. `Err` ends the traversal.
    fn failed(&self, work: &PendingFrame<Self::Context>, error: Error) -> Result<()>;

    /// Called after each visit; `waiting` frames are known but not visited.
    fn progress(&self, waiting: u64);
}

/// Includes everything below `first`. Ends with the visitor's first error.
pub(crate) async fn traverse<J: Visitor>(
    tree: &Tree,
    visitor: &Arc<J>,
    first: Vec<PendingFrame<J::Context>>,
    in_flight_bytes_max: u64,
) -> Result<()> {
    let mut stack = first;
    stack.reverse();
    let blocking = Arc::new(Semaphore::new(BLOCKING_MAX));
    let mut running = FuturesUnordered::new();
    let mut in_flight = 0;
    loop {
        while running.len() < FRAMES_IN_FLIGHT_MAX
            && (in_flight < in_flight_bytes_max || running.is_empty())
            && let Some(work) = stack.pop()
        {
            let len = work.len_expected as u64;
            in_flight += len;
            let visit = visit(tree, visitor, work, &blocking);
            running.push(async move { (len, visit.await) });
        }
        let Some((len, found)) = running.next().await else { return Ok(()) };
        in_flight -= len;
        stack.extend(found?.into_iter().rev());
        visitor.progress((stack.len() + running.len()) as u64);
    }
}

async fn visit<J: Visitor>(
    tree: &Tree,
    visitor: &Arc<J>,
    work: PendingFrame<J::Context>,
    blocking: &Arc<Semaphore>,
) -> Result<Vec<PendingFrame<J::Context>>> {
    let work = Arc::new(work);
    let look = {
        let (visitor, work) = (Arc::clone(visitor), Arc::clone(&work));
        off_reactor(tree, blocking, move || match visitor.stored_frame(&work)? {
            Some(stored) => open(&*visitor, &work, &stored).map(Some),
            None => Ok(None),
        })
        .await?
    };
    if let Some(children) = look {
        return Ok(children);
    }
    let fetched = match fetch(tree, &work).await {
        Ok(fetched) => fetched,
        Err(error) => {
            let visitor = Arc::clone(visitor);
            return off_reactor(tree, blocking, move || {
                visitor.failed(&work, error).map(|()| Vec::new())
            })
            .await;
        }
    };
    let visitor = Arc::clone(visitor);
    off_reactor(tree, blocking, move || {
        visitor.fetched(&work, &fetched.stored)?;
        open(&*visitor, &work, &fetched.stored)
    })
    .await
}

fn open<J: Visitor>(
    visitor: &J,
    work: &PendingFrame<J::Context>,
    stored: &Bytes,
) -> Result<Vec<PendingFrame<J::Context>>> {
    if work.kind == FrameKind::Leaf && !J::DECODES_LEAVES {
        return Ok(Vec::new());
    }
    match Frame::decode(work.kind, &work.handle, stored) {
        Ok(frame) => visitor.children(work, &frame),
        Err(error) => visitor.failed(work, error).map(|()| Vec::new()),
    }
}

/// Frames wait for each other on a slow line: the limit is for a time in which none arrives.
async fn fetch<C>(tree: &Tree, work: &PendingFrame<C>) -> Result<crate::replica::FetchedFrame> {
    let limit = tree.operation_max();
    loop {
        let want = FrameRequest {
            handle: work.handle,
            iv: tree.iv(),
            decode: None,
            len_expected: work.len_expected,
            priority: Priority::Background,
        };
        let frames_before = tree.counters().network_frames;
        match tree.replicas_set().fetch(want, Instant::now() + limit, limit).await {
            Err(error)
                if error.class() == ErrorClass::Unreachable
                    && tree.counters().network_frames > frames_before => {}
            done => return done,
        }
    }
}

async fn off_reactor<T: Send + 'static>(
    tree: &Tree,
    slots: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let slot = Arc::clone(slots).acquire_owned().await;
    let done = tree.client().run_blocking(move || {
        let _slot = slot;
        work()
    });
    done.await.unwrap_or_else(|e| {
        Err(Error::Damaged { what: format!("a worker thread ended early: {e}") })
    })
}
