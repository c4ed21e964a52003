use std::sync::Arc;

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

/// 8 MiB. Longer reads take several rounds.
const LEAVES_AT_ONCE: u64 = 64;

static ZEROS: [u8; LEAF_LEN_MAX] = [0; LEAF_LEN_MAX];

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

enum Level {
    /// `u64`: bytes that the hole covers.
    Leaf(LeafPlace, u64),
    Indirect {
        depth: u8,
        handle: BlockHandle,
    },
}

fn top_of(blob: &Blob) -> Level {
    match &blob.body {
        BlobBody::Inline(_) | BlobBody::Hole => Level::Leaf(LeafPlace::Hole, u64::MAX),
        BlobBody::Leaf(handle) => Level::Leaf(LeafPlace::At(*handle), LEAF),
        BlobBody::Tree { depth, top } => Level::Indirect { depth: *depth, handle: *top },
    }
}

fn next_level(page: &Indirect, depth: u8, handle: &BlockHandle, leaf: u64) -> Result<Level> {
    if page.depth != depth {
        return Err(Error::Damaged {
            what: format!("indirect frame {handle}: its depth differs from the one in its parent"),
        });
    }
    let span = child_span(depth);
    let index = (leaf * LEAF / span) as usize % FANOUT;
    Ok(match page.child(index) {
        None => Level::Leaf(LeafPlace::Hole, span),
        Some(child) if depth == 1 => Level::Leaf(LeafPlace::At(child), LEAF),
        Some(child) => Level::Indirect { depth: depth - 1, handle: child },
    })
}

fn indirect(frame: Frame, handle: &BlockHandle) -> Result<Arc<Indirect>> {
    match frame {
        Frame::Indirect(page) => Ok(page),
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

fn slice_leaf(whole: &Bytes, leaf: u64, range: &std::ops::Range<u64>) -> Bytes {
    let start = range.start.saturating_sub(leaf * LEAF) as usize;
    let end = (range.end - leaf * LEAF).min(whole.len() as u64) as usize;
    whole.slice(start.min(end)..end)
}

fn clamp_range(blob: &Blob, offset: u64, len: usize) -> Option<std::ops::Range<u64>> {
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

    async fn read_pieces(&self, blob: &Blob, offset: u64, len: usize) -> Result<Vec<Bytes>> {
        let deadline = self.start_operation().await?;
        let Some(range) = clamp_range(blob, offset, len) else { return Ok(Vec::new()) };
        if let BlobBody::Inline(bytes) = &blob.body {
            return Ok(vec![Bytes::copy_from_slice(
                &bytes[range.start as usize..range.end as usize],
            )]);
        }
        let (mut leaf, end) = (range.start / LEAF, range.end.div_ceil(LEAF));
        let mut pieces = Vec::with_capacity((end - leaf).min(1024) as usize);
        while leaf < end {
            let count = (end - leaf).min(LEAVES_AT_ONCE);
            let places =
                self.leaf_places(blob, leaf, count, Priority::Foreground, deadline).await?;
            let fetches = places.iter().zip(leaf..).map(|(place, leaf)| {
                self.leaf_by(blob, leaf, *place, Priority::Foreground, deadline)
            });
            let leaves = try_join_all(fetches).await?;
            pieces.extend(
                leaves.iter().zip(leaf..).map(|(bytes, leaf)| slice_leaf(bytes, leaf, &range)),
            );
            leaf += count;
        }
        Ok(pieces)
    }

    /// As [`Tree::read`], without the network.
    pub fn try_read(&self, blob: &Blob, offset: u64, len: usize) -> Option<Result<Bytes>> {
        self.run_local(self.read_local(blob, offset, len))
    }

    async fn read_local(&self, blob: &Blob, offset: u64, len: usize) -> Result<Option<Bytes>> {
        let Some(range) = clamp_range(blob, offset, len) else { return Ok(Some(Bytes::new())) };
        if let BlobBody::Inline(bytes) = &blob.body {
            return Ok(Some(Bytes::copy_from_slice(
                &bytes[range.start as usize..range.end as usize],
            )));
        }
        let mut pieces = Vec::new();
        for leaf in range.start / LEAF..range.end.div_ceil(LEAF) {
            let Some((place, _)) = self.leaf_place(blob, leaf, Source::Local).await? else {
                return Ok(None);
            };
            let len = leaf_len(blob.size, leaf);
            let bytes = match place {
                LeafPlace::Hole => Bytes::from_static(&ZEROS[..len]),
                LeafPlace::At(handle) => match self.local_frame(FrameKind::Leaf, &handle) {
                    Some(frame) => leaf_bytes(frame?, &handle, len)?,
                    None => return Ok(None),
                },
            };
            pieces.push(slice_leaf(&bytes, leaf, &range));
        }
        Ok(Some(join(pieces)))
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
            LeafPlace::Hole => Ok(Bytes::from_static(&ZEROS[..len])),
            LeafPlace::At(handle) => leaf_bytes(
                self.frame_by(FrameKind::Leaf, &handle, len, priority, deadline).await?,
                &handle,
                len,
            ),
        }
    }

    pub(crate) async fn leaf_places(
        &self,
        blob: &Blob,
        first: u64,
        count: u64,
        priority: Priority,
        deadline: Instant,
    ) -> Result<Vec<LeafPlace>> {
        let mut places = Vec::with_capacity(count as usize);
        let mut page: Option<(u64, Arc<Indirect>)> = None;
        for leaf in first..first + count {
            let fan = FANOUT as u64;
            if let Some((_, page)) = page.as_ref().filter(|(number, _)| *number == leaf / fan) {
                places
                    .push(page.child((leaf % fan) as usize).map_or(LeafPlace::Hole, LeafPlace::At));
                continue;
            }
            let mut at = top_of(blob);
            let place = loop {
                match at {
                    Level::Leaf(place, _) => break place,
                    Level::Indirect { depth, handle } => {
                        let frame = self
                            .frame_by(
                                FrameKind::Indirect,
                                &handle,
                                PAGE_LEN_EXPECTED,
                                priority,
                                deadline,
                            )
                            .await?;
                        let found = indirect(frame, &handle)?;
                        at = next_level(&found, depth, &handle, leaf)?;
                        if depth == 1 {
                            page = Some((leaf / fan, found));
                        }
                    }
                }
            };
            places.push(place);
        }
        Ok(places)
    }

    /// Also returns the bytes covered.
    async fn leaf_place(
        &self,
        blob: &Blob,
        leaf: u64,
        source: Source,
    ) -> Result<Option<(LeafPlace, u64)>> {
        let mut at = top_of(blob);
        loop {
            match at {
                Level::Leaf(place, span) => return Ok(Some((place, span))),
                Level::Indirect { depth, handle } => {
                    let Some(frame) = self
                        .frame_from(FrameKind::Indirect, &handle, PAGE_LEN_EXPECTED, source)
                        .await?
                    else {
                        return Ok(None);
                    };
                    at = next_level(indirect(frame, &handle)?.as_ref(), depth, &handle, leaf)?;
                }
            }
        }
    }

    pub(crate) fn local_leaf_place(&self, blob: &Blob, leaf: u64) -> Option<LeafPlace> {
        self.run_local(self.leaf_place(blob, leaf, Source::Local))?.ok().map(|(place, _)| place)
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
        let mut at = offset;
        while at < blob.size {
            let found = self.leaf_place(blob, at / LEAF, Source::Replicas(deadline)).await?;
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
        frames: Vec<(FrameKind, BlockHandle)>,
        len_expected: usize,
    ) {
        let tree = Arc::clone(self);
        let deadline = Instant::now() + self.operation_max();
        self.client().runtime.spawn(async move {
            let fetches = frames.iter().filter(|(_, handle)| !tree.is_in_memory(handle)).map(
                |(kind, handle)| {
                    let tree = &tree;
                    async move {
                        drop(
                            tree.frame_by(
                                *kind,
                                handle,
                                len_expected,
                                Priority::Background,
                                deadline,
                            )
                            .await,
                        )
                    }
                },
            );
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
