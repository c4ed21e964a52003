//! Files and large sets of extended attributes, as trees of 128 KiB leaves below indirect frames.
//! Byte N is in leaf N / 128 KiB; an indirect frame of depth D covers 128 KiB × 1024^D. Ranges of
//! zeros are holes and are not stored.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use crate::{BlockHandle, FrameKind, LEAF_LEN_MAX};

/// Longest content in the inode itself, in bytes.
pub const INLINE_LEN_MAX: usize = 1024;

/// Children of a full indirect frame: 36 KiB of XDR.
pub const FANOUT: usize = 1024;

/// Deepest tree: 128 KiB × 1024^5 covers every file offset.
pub const DEPTH_MAX: u8 = 5;

/// The largest file offset.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

/// Content of a file, or a large set of extended attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Bytes, holes included.
    pub size: u64,
    /// Where the bytes are.
    pub body: BlobBody,
}

/// The size decides which variant is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobBody {
    /// At most [`INLINE_LEN_MAX`] bytes, in the inode.
    Inline(Vec<u8>),
    /// All bytes are zero.
    Hole,
    /// One leaf.
    Leaf(BlockHandle),
    /// Several leaves.
    Tree {
        /// Levels of indirect frames, 1 to [`DEPTH_MAX`].
        depth: u8,
        /// The topmost indirect frame.
        top: BlockHandle,
    },
}

/// Bytes below one child of an indirect frame of `depth`.
pub const fn child_span(depth: u8) -> u64 {
    (LEAF_LEN_MAX as u64) << (10 * (depth as u32 - 1))
}

/// 0 if one leaf covers `size`.
pub(crate) const fn depth_for(size: u64) -> u8 {
    let mut depth = 0;
    while depth < DEPTH_MAX && size > child_span(depth + 1) {
        depth += 1;
    }
    depth
}

impl Blob {
    /// A blob without bytes.
    pub const fn empty() -> Self {
        Self { size: 0, body: BlobBody::Inline(Vec::new()) }
    }

    /// The frame to fetch first.
    pub const fn top(&self) -> Option<(FrameKind, BlockHandle)> {
        match &self.body {
            BlobBody::Inline(_) | BlobBody::Hole => None,
            BlobBody::Leaf(handle) => Some((FrameKind::Leaf, *handle)),
            BlobBody::Tree { top, .. } => Some((FrameKind::Indirect, *top)),
        }
    }
}

impl Xdr for Blob {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.size);
        match &self.body {
            BlobBody::Inline(bytes) => {
                w.u32(0);
                w.opaque(bytes);
            }
            BlobBody::Hole => w.u32(1),
            BlobBody::Leaf(handle) => {
                w.u32(2);
                w.opaque_fixed(handle.as_bytes());
            }
            BlobBody::Tree { depth, top } => {
                w.u32(3);
                w.u32((*depth).into());
                w.opaque_fixed(top.as_bytes());
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let size = r.u64()?;
        if size > SIZE_MAX {
            return Err(XdrError::Invalid("blob size"));
        }
        let body = match r.u32()? {
            0 => BlobBody::Inline(r.opaque(INLINE_LEN_MAX)?.to_vec()),
            1 => BlobBody::Hole,
            2 => BlobBody::Leaf(BlockHandle::from_bytes(r.opaque_fixed()?)),
            3 => {
                let depth = r.u32()?;
                let top = BlockHandle::from_bytes(r.opaque_fixed()?);
                BlobBody::Tree {
                    depth: u8::try_from(depth).map_err(|_| XdrError::Invalid("blob depth"))?,
                    top,
                }
            }
            value => return Err(XdrError::Unknown { what: "blob body", value }),
        };
        // Each size has exactly one shape, so equal content has equal handles.
        let fits = match &body {
            BlobBody::Inline(bytes) => bytes.len() as u64 == size,
            BlobBody::Hole => size > INLINE_LEN_MAX as u64,
            BlobBody::Leaf(_) => size > INLINE_LEN_MAX as u64 && depth_for(size) == 0,
            BlobBody::Tree { depth, .. } => *depth > 0 && depth_for(size) == *depth,
        };
        if fits { Ok(Self { size, body }) } else { Err(XdrError::Invalid("blob shape")) }
    }
}

/// Payload of an indirect frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indirect {
    /// At depth 1 the children are leaves.
    pub depth: u8,
    /// `None` is a hole. At most [`FANOUT`]; trailing holes are omitted.
    pub children: Vec<Option<BlockHandle>>,
}

impl Indirect {
    /// `None`: a hole, also past the end.
    pub fn child(&self, index: usize) -> Option<BlockHandle> {
        self.children.get(index).copied().flatten()
    }

    /// The kind of all children.
    pub const fn child_kind(&self) -> FrameKind {
        if self.depth == 1 { FrameKind::Leaf } else { FrameKind::Indirect }
    }
}

impl Xdr for Indirect {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.depth.into());
        w.count(self.children.len());
        for child in &self.children {
            w.optional(child.as_ref(), |w, handle| w.opaque_fixed(handle.as_bytes()));
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let depth = r.u32()?;
        if !(1..=u32::from(DEPTH_MAX)).contains(&depth) {
            return Err(XdrError::Invalid("indirect depth"));
        }
        let count = r.count(FANOUT)?;
        let children = (0..count)
            .map(|_| r.optional(|r| Ok(BlockHandle::from_bytes(r.opaque_fixed()?))))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { depth: depth as u8, children })
    }
}

/// Takes leaves in order.
#[derive(Debug, Default)]
pub struct BlobBuilder {
    levels: Vec<Vec<Option<BlockHandle>>>,
    leaves: u64,
}

impl BlobBuilder {
    /// A builder without leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// `put` stores complete indirect frames and returns their handles.
    pub fn leaf<E>(
        &mut self,
        handle: BlockHandle,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        self.leaves += 1;
        self.push(0, Some(handle), put)
    }

    /// Appends `count` leaves of zeros. O(log count) once aligned.
    pub fn holes<E>(
        &mut self,
        mut count: u64,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        self.leaves += count;
        while count > 0 {
            let mut level = 0;
            while level + 1 < usize::from(DEPTH_MAX)
                && self.levels.get(level).is_none_or(Vec::is_empty)
                && count >= (FANOUT as u64).pow(level as u32 + 1)
            {
                level += 1;
            }
            count -= (FANOUT as u64).pow(level as u32);
            self.push(level, None, put)?;
        }
        Ok(())
    }

    /// # Panics
    /// The leaves do not cover `size`, or `size` fits [`INLINE_LEN_MAX`].
    pub fn finish<E>(
        mut self,
        size: u64,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<Blob, E> {
        assert!(size > INLINE_LEN_MAX as u64 && size <= SIZE_MAX, "small blobs are inline");
        assert_eq!(self.leaves, size.div_ceil(LEAF_LEN_MAX as u64), "leaves cover the size");
        let depth = depth_for(size);
        if depth == 0 {
            let body = self.levels[0][0].map_or(BlobBody::Hole, BlobBody::Leaf);
            return Ok(Blob { size, body });
        }
        for level in 0..usize::from(depth) - 1 {
            if self.levels.get(level).is_some_and(|l| !l.is_empty()) {
                self.close(level, put)?;
            }
        }
        let level = usize::from(depth) - 1;
        let top = match self.levels.get(level + 1).and_then(|above| above.first()) {
            Some(&child) => child,
            None => {
                let children = self.levels.get_mut(level).map(core::mem::take).unwrap_or_default();
                Self::put_indirect(depth, children, put)?
            }
        };
        Ok(Blob { size, body: top.map_or(BlobBody::Hole, |top| BlobBody::Tree { depth, top }) })
    }

    fn push<E>(
        &mut self,
        level: usize,
        child: Option<BlockHandle>,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        while self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(child);
        if self.levels[level].len() == FANOUT { self.close(level, put) } else { Ok(()) }
    }

    fn close<E>(
        &mut self,
        level: usize,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        let children = core::mem::take(&mut self.levels[level]);
        let handle = Self::put_indirect(level as u8 + 1, children, put)?;
        self.push(level + 1, handle, put)
    }

    fn put_indirect<E>(
        depth: u8,
        mut children: Vec<Option<BlockHandle>>,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<Option<BlockHandle>, E> {
        while children.last().is_some_and(Option::is_none) {
            children.pop();
        }
        if children.is_empty() {
            return Ok(None);
        }
        put(FrameKind::Indirect, &Indirect { depth, children }.to_xdr()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const LEAF: u64 = LEAF_LEN_MAX as u64;

    fn handle(n: u64) -> BlockHandle {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(n + 1).to_be_bytes());
        BlockHandle::from_bytes(bytes)
    }

    fn build(size: u64, runs: &[(u64, bool)]) -> (Blob, HashMap<BlockHandle, Indirect>) {
        let mut frames = HashMap::new();
        let mut put = |kind, payload: &[u8]| {
            assert_eq!(kind, FrameKind::Indirect);
            let handle = BlockHandle::from_bytes(*blake3::hash(payload).as_bytes());
            frames.insert(handle, Indirect::from_xdr(payload).unwrap());
            Ok::<_, ()>(handle)
        };
        let (mut builder, mut at) = (BlobBuilder::new(), 0);
        for &(count, hole) in runs {
            if hole {
                builder.holes(count, &mut put).unwrap();
            } else {
                (at..at + count).for_each(|n| builder.leaf(handle(n), &mut put).unwrap());
            }
            at += count;
        }
        let blob = builder.finish(size, &mut put).unwrap();
        (blob, frames)
    }

    fn leaf_at(
        blob: &Blob,
        frames: &HashMap<BlockHandle, Indirect>,
        n: u64,
    ) -> Option<BlockHandle> {
        match blob.body {
            BlobBody::Leaf(handle) => Some(handle),
            BlobBody::Tree { mut depth, top } => {
                let mut at = top;
                loop {
                    let page = &frames[&at];
                    assert_eq!(page.depth, depth);
                    let index = n * LEAF / child_span(depth) % FANOUT as u64;
                    at = page.child(index as usize)?;
                    if depth == 1 {
                        return Some(at);
                    }
                    depth -= 1;
                }
            }
            _ => None,
        }
    }

    #[test]
    fn finds_every_leaf() {
        let full = FANOUT as u64;
        for runs in [
            vec![(1, false)],
            vec![(2, false)],
            vec![(full, false)],
            vec![(full + 1, false)],
            vec![(5, true), (1, false), (3 * full, true), (7, false)],
            vec![(full * full, true), (1, false)],
            vec![(full * full, false)],
            vec![(1, false), (full * full * 3, true), (1, false)],
        ] {
            let leaves: u64 = runs.iter().map(|r| r.0).sum();
            for size in [leaves * LEAF, (leaves - 1) * LEAF + 1025] {
                let (blob, frames) = build(size, &runs);
                assert_eq!(Blob::from_xdr(&blob.to_xdr()).unwrap(), blob);
                let mut at = 0;
                for &(count, hole) in &runs {
                    for n in [at, at + count / 2, at + count - 1] {
                        assert_eq!(
                            leaf_at(&blob, &frames, n),
                            (!hole).then(|| handle(n)),
                            "leaf {n} of {runs:?}"
                        );
                    }
                    at += count;
                }
            }
        }
    }

    #[test]
    fn largest_sparse_file_is_one_hole() {
        let (blob, frames) = build(SIZE_MAX, &[(SIZE_MAX.div_ceil(LEAF), true)]);
        assert_eq!((blob.body, frames.len()), (BlobBody::Hole, 0));
    }

    #[test]
    fn sparse_file_stores_one_frame_per_level() {
        let leaves = (100 << 30) / LEAF;
        let (_, frames) = build(100 << 30, &[(leaves - 1, true), (1, false)]);
        assert_eq!(frames.len(), 2);
    }

    #[test]
    fn refuses_shape_that_does_not_fit_size() {
        let leaf = BlobBody::Leaf(handle(0));
        for (size, body) in [
            (5, BlobBody::Inline(vec![0; 4])),
            (5, leaf.clone()),
            (LEAF + 1, leaf),
            (LEAF, BlobBody::Tree { depth: 1, top: handle(0) }),
            (LEAF * 2, BlobBody::Tree { depth: 2, top: handle(0) }),
            (u64::MAX, BlobBody::Hole),
        ] {
            assert!(Blob::from_xdr(&Blob { size, body }.to_xdr()).is_err());
        }
    }
}
