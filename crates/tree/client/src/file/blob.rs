use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use tokio::time::Instant;
use vouch_tree::blob::{FANOUT, Indirect, child_span};
use vouch_tree::xattr::{SET_LEN_MAX, Xattrs};
use vouch_tree::{Blob, BlobBody, BlockHandle, FrameKind, Inode, LEAF_LEN_MAX};
use vouch_xdr::Xdr;

use crate::frame::Frame;
use crate::replica::Priority;
use crate::tree::{PAGE_LEN_EXPECTED, Source};
use crate::{Error, Result, Tree};

const LEAF: u64 = LEAF_LEN_MAX as u64;

/// 32 MiB, more than a usual row group of a table. Longer reads take several rounds.
const LEAVES_AT_ONCE: u64 = 256;

/// On the heap: the program need not carry them.
static ZEROS: LazyLock<Bytes> = LazyLock::new(|| vec![0; LEAF_LEN_MAX].into());

/// What [`Tree::seek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte of a hole; the end of the file counts as one.
    Hole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafPlace {
    Hole,
    At(BlockHandle),
}

/// Finds leaves, and keeps the last page that names them.
struct LeafWalk<'b> {
    blob: &'b Blob,
    source: Source,
    page: Option<(u64, Arc<Indirect>)>,
}

impl<'b> LeafWalk<'b> {
    fn new(blob: &'b Blob, source: Source) -> Self {
        LeafWalk { blob, source, page: None }
    }

    /// Also returns the bytes covered. `None`: a frame must be fetched, but the source is local.
    async fn place(&mut self, tree: &Tree, leaf: u64) -> Result<Option<(LeafPlace, u64)>> {
        let page_number = leaf / FANOUT as u64;
        let page = self.page.as_ref().filter(|(number, _)| *number == page_number);
        let (mut depth, mut handle) = match (page, &self.blob.body) {
            (Some((_, page)), _) => {
                let child = page.child((leaf % FANOUT as u64) as usize);
                return Ok(Some((child.map_or(LeafPlace::Hole, LeafPlace::At), LEAF)));
            }
            (None, BlobBody::Tree { depth, top }) => (*depth, *top),
            (None, BlobBody::Leaf(handle)) => return Ok(Some((LeafPlace::At(*handle), LEAF))),
            (None, BlobBody::Inline(_) | BlobBody::Hole) => {
                return Ok(Some((LeafPlace::Hole, u64::MAX)));
            }
        };
        loop {
            let Some(frame) = tree
                .frame_from(FrameKind::Indirect, &handle, PAGE_LEN_EXPECTED, self.source)
                .await?
            else {
                return Ok(None);
            };
            let page = indirect(frame, depth, &handle)?;
            let span = child_span(depth);
            let child = page.child((leaf * LEAF / span) as usize % FANOUT);
            if depth == 1 {
                self.page = Some((page_number, page));
            }
            match child {
                None => return Ok(Some((LeafPlace::Hole, span))),
                Some(child) if depth == 1 => return Ok(Some((LeafPlace::At(child), LEAF))),
                Some(child) => (depth, handle) = (depth - 1, child),
            }
        }
    }
}

fn indirect(frame: Frame, depth: u8, handle: &BlockHandle) -> Result<Arc<Indirect>> {
    match frame {
        Frame::Indirect(page) if page.depth == depth => Ok(page),
        Frame::Indirect(_) => Err(Error::Damaged {
            what: format!("indirect frame {handle}: its depth differs from the one in its parent"),
        }),
        _ => Err(Error::Damaged { what: format!("frame {handle} is not an indirect frame") }),
    }
}

pub(crate) fn leaf_len(size: u64, leaf: u64) -> usize {
    (size - leaf * LEAF).min(LEAF) as usize
}

fn leaf_bytes(frame: Frame, handle: &BlockHandle, len: usize) -> Result<Bytes> {
    match frame {
        Frame::Leaf(bytes) if bytes.len() == len => Ok(bytes),
        Frame::Leaf(bytes) => Err(Error::Damaged {
            what: format!("leaf {handle} has {} bytes instead of {len}", bytes.len()),
        }),
        _ => Err(Error::Damaged { what: format!("frame {handle} is not a leaf") }),
    }
}

fn slice_leaf(whole: &Bytes, leaf: u64, range: &Range<u64>) -> Bytes {
    let start = range.start.saturating_sub(leaf * LEAF) as usize;
    let end = (range.end - leaf * LEAF).min(whole.len() as u64) as usize;
    whole.slice(start.min(end)..end)
}

fn clamp_range(blob: &Blob, offset: u64, len: usize) -> Option<Range<u64>> {
    let end = offset.saturating_add(len as u64).min(blob.size);
    (offset < end).then_some(offset..end)
}

fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() <= 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    whole.freeze()
}

impl Tree {
    /// Short at the end of the file. Copies unless one cached leaf holds all bytes.
    pub async fn read(&self, blob: &Blob, offset: u64, len: usize) -> Result<Bytes> {
        self.read_pieces(blob, offset, len).await.map(join)
    }

    /// As [`Tree::read`], in pieces that are not joined.
    pub async fn read_pieces(&self, blob: &Blob, offset: u64, len: usize) -> Result<Vec<Bytes>> {
        let deadline = self.start_operation().await?;
        let Some(range) = clamp_range(blob, offset, len) else { return Ok(Vec::new()) };
        if let BlobBody::Inline(bytes) = &blob.body {
            return Ok(vec![Bytes::copy_from_slice(
                &bytes[range.start as usize..range.end as usize],
            )]);
        }
        let end = range.end.div_ceil(LEAF);
        let mut walk = LeafWalk::new(blob, Source::foreground(deadline));
        let mut pieces = Vec::with_capacity((end - range.start / LEAF).min(1024) as usize);
        for first in (range.start / LEAF..end).step_by(LEAVES_AT_ONCE as usize) {
            let mut fetches = Vec::new();
            for leaf in first..end.min(first + LEAVES_AT_ONCE) {
                let found = walk.place(self, leaf).await?;
                let (place, _) = found.expect("fetched frames lead to a leaf");
                fetches.push(self.leaf_by(blob, leaf, place, Priority::Foreground, deadline));
            }
            let leaves = try_join_all(fetches).await?;
            pieces.extend(
                leaves.iter().zip(first..).map(|(bytes, leaf)| slice_leaf(bytes, leaf, &range)),
            );
        }
        Ok(pieces)
    }

    /// As [`Tree::read`], without the network.
    pub fn try_read(&self, blob: &Blob, offset: u64, len: usize) -> Option<Result<Bytes>> {
        self.try_read_pieces(blob, offset, len).map(|pieces| pieces.map(join))
    }

    /// As [`Tree::read_pieces`], without the network.
    pub fn try_read_pieces(
        &self,
        blob: &Blob,
        offset: u64,
        len: usize,
    ) -> Option<Result<Vec<Bytes>>> {
        self.run_local(self.read_local(blob, offset, len))
    }

    async fn read_local(&self, blob: &Blob, offset: u64, len: usize) -> Result<Option<Vec<Bytes>>> {
        let Some(range) = clamp_range(blob, offset, len) else { return Ok(Some(Vec::new())) };
        if let BlobBody::Inline(bytes) = &blob.body {
            return Ok(Some(vec![Bytes::copy_from_slice(
                &bytes[range.start as usize..range.end as usize],
            )]));
        }
        let is_long = matches!(blob.body, BlobBody::Tree { .. });
        let (mut pieces, mut walk) = (Vec::new(), LeafWalk::new(blob, Source::Local));
        for leaf in range.start / LEAF..range.end.div_ceil(LEAF) {
            let Some((place, _)) = walk.place(self, leaf).await? else { return Ok(None) };
            let len = leaf_len(blob.size, leaf);
            let is_whole = range.start <= leaf * LEAF && leaf * LEAF + len as u64 <= range.end;
            let bytes = match place {
                LeafPlace::Hole => ZEROS.slice(..len),
                LeafPlace::At(handle) => {
                    let found = match is_long && is_whole {
                        true => self.local_frame_of_long_read(FrameKind::Leaf, &handle),
                        false => self.local_frame(FrameKind::Leaf, &handle),
                    };
                    let Some(frame) = found else { return Ok(None) };
                    leaf_bytes(frame?, &handle, len)?
                }
            };
            pieces.push(slice_leaf(&bytes, leaf, &range));
        }
        Ok(Some(pieces))
    }

    async fn leaf_by(
        &self,
        blob: &Blob,
        leaf: u64,
        place: LeafPlace,
        priority: Priority,
        deadline: Instant,
    ) -> Result<Bytes> {
        let len = leaf_len(blob.size, leaf);
        match place {
            LeafPlace::Hole => Ok(ZEROS.slice(..len)),
            LeafPlace::At(handle) => leaf_bytes(
                self.frame_by(FrameKind::Leaf, &handle, len, priority, deadline).await?,
                &handle,
                len,
            ),
        }
    }

    /// `None`: a frame must be fetched, but the source is local.
    pub(crate) async fn leaf_places(
        &self,
        blob: &Blob,
        leaves: Range<u64>,
        source: Source,
    ) -> Result<Option<Vec<LeafPlace>>> {
        let mut walk = LeafWalk::new(blob, source);
        let mut places = Vec::new();
        for leaf in leaves {
            let Some((place, _)) = walk.place(self, leaf).await? else { return Ok(None) };
            places.push(place);
        }
        Ok(Some(places))
    }

    pub(crate) fn local_leaf_place(&self, blob: &Blob, leaf: u64) -> Option<LeafPlace> {
        let mut walk = LeafWalk::new(blob, Source::Local);
        self.run_local(walk.place(self, leaf))?.ok().map(|(place, _)| place)
    }

    /// Works like lseek(2); `None` means ENXIO. The resolution is one leaf. O(leaves in between); a
    /// hole costs one step.
    pub async fn seek(&self, blob: &Blob, offset: u64, whence: Seek) -> Result<Option<u64>> {
        let deadline = self.start_operation().await?;
        if offset >= blob.size {
            return Ok(None);
        }
        if let BlobBody::Inline(_) = blob.body {
            return Ok(Some(if whence == Seek::Data { offset } else { blob.size }));
        }
        let mut walk = LeafWalk::new(blob, Source::foreground(deadline));
        let mut at = offset;
        while at < blob.size {
            let found = walk.place(self, at / LEAF).await?;
            let (place, span) = found.expect("fetched frames lead to a leaf");
            match (whence, place) {
                (Seek::Data, LeafPlace::At(_)) | (Seek::Hole, LeafPlace::Hole) => {
                    return Ok(Some(at));
                }
                _ => {
                    at = if span == u64::MAX {
                        blob.size
                    } else {
                        (at / span + 1).saturating_mul(span)
                    }
                }
            }
        }
        Ok((whence == Seek::Hole).then_some(blob.size))
    }

    /// The extended attributes of a file; empty if there are none.
    pub async fn xattrs(&self, inode: &Inode) -> Result<Arc<Xattrs>> {
        let blob = xattr_blob(inode)?;
        decode_xattrs(&self.read(blob, 0, blob.size as usize).await?)
    }

    /// As [`Tree::xattrs`], without the network.
    pub fn try_xattrs(&self, inode: &Inode) -> Option<Result<Arc<Xattrs>>> {
        match xattr_blob(inode) {
            Ok(blob) => self
                .try_read(blob, 0, blob.size as usize)
                .map(|bytes| bytes.and_then(|b| decode_xattrs(&b))),
            Err(error) => Some(Err(error)),
        }
    }

    /// Ignores errors: the reader will meet them.
    pub(crate) fn prefetch(
        self: &Arc<Self>,
        mut frames: Vec<(FrameKind, BlockHandle)>,
        len_expected: usize,
    ) {
        frames.retain(|(_, handle)| !self.is_in_memory(handle));
        if frames.is_empty() {
            return;
        }
        let tree = Arc::clone(self);
        let deadline = Instant::now() + self.operation_max();
        self.client().runtime.spawn(async move {
            let fetches = frames.iter().map(|(kind, handle)| {
                tree.frame_by(*kind, handle, len_expected, Priority::Background, deadline)
            });
            futures_util::future::join_all(fetches).await;
        });
    }
}

fn xattr_blob(inode: &Inode) -> Result<&Blob> {
    if inode.xattrs.size <= SET_LEN_MAX {
        Ok(&inode.xattrs)
    } else {
        Err(Error::Damaged {
            what: format!("a set of extended attributes has {} bytes", inode.xattrs.size),
        })
    }
}

fn decode_xattrs(bytes: &[u8]) -> Result<Arc<Xattrs>> {
    if bytes.is_empty() {
        return Ok(Arc::new(Xattrs::default()));
    }
    Xattrs::from_xdr(bytes)
        .map(Arc::new)
        .map_err(|e| Error::Damaged { what: format!("extended attributes: {e}") })
}
