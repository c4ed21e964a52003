//! Reads files into leaves: large files in batches shared by all threads.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;

use vouch_tree::blob::{BlobBuilder, INLINE_LEN_MAX};
use vouch_tree::keyfile::{self, Role};
use vouch_tree::{Blob, BlobBody, BlockHandle, FrameKind, LEAF_LEN_MAX};

use crate::error::{Error, FileError};
use crate::extent::{Extents, Span};
use crate::frames::Frames;
use crate::previous::PreviousFile;

pub(crate) const SMALL_LEN_MAX: u64 = (GROUP_LEAF_COUNT * LEAF_LEN_MAX) as u64;

/// Leaves per job: 1 MiB, a thread's buffer.
pub(crate) const GROUP_LEAF_COUNT: usize = 8;

/// 64 MiB of data, of which only handles are held.
const BATCH_LEAF_COUNT: u64 = 512;

pub(crate) fn read_small(
    frames: &Frames<'_>,
    file: BorrowedFd<'_>,
    size: u64,
    previous: Option<PreviousFile<'_>>,
) -> Result<(Blob, u64), FileError> {
    if size <= INLINE_LEN_MAX as u64 {
        let mut bytes = vec![0; size as usize];
        read_exact(file, &mut bytes, 0)?;
        // Key files are this short.
        if is_private(&bytes) {
            return Err(FileError::Private);
        }
        return Ok((Blob { size, body: BlobBody::Inline(bytes) }, size));
    }
    let mut content = LargeContent::new(size);
    while let Some(batch) = content.next_batch(file)? {
        let mut leaves = vec![None; batch.leaf_count()];
        for group in &batch.groups {
            let at = group.at;
            read_group(frames, file, size, group, previous, &mut leaves[at..at + group.count])?;
        }
        content.append_batch(frames, &batch, previous, &leaves)?;
    }
    content.finish(frames, previous)
}

fn put_indirect(
    frames: &Frames<'_>,
    previous: Option<PreviousFile<'_>>,
    payload: &[u8],
) -> Result<BlockHandle, Error> {
    match previous {
        Some(previous) => previous.put_indirect(frames, payload),
        None => frames.put(FrameKind::Indirect, payload),
    }
}

pub(crate) fn is_private(bytes: &[u8]) -> bool {
    bytes.starts_with(b"vouch ")
        && [Role::Root, Role::Signing].iter().any(|role| keyfile::is_sealed(*role, bytes).is_ok())
}

pub(crate) fn blob_of_bytes(frames: &Frames<'_>, bytes: &[u8]) -> Result<Blob, FileError> {
    let size = bytes.len() as u64;
    if bytes.len() <= INLINE_LEN_MAX {
        return Ok(Blob { size, body: BlobBody::Inline(bytes.to_vec()) });
    }
    let mut put = |kind, payload: &[u8]| frames.put(kind, payload);
    let mut builder = BlobBuilder::new();
    for leaf in bytes.chunks(LEAF_LEN_MAX) {
        if is_zero(leaf) {
            builder.holes(1, &mut put)?;
        } else {
            builder.leaf(frames.put(FrameKind::Leaf, leaf)?, &mut put)?;
        }
    }
    Ok(builder.finish(size, &mut put)?)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    first: u64,
    pub(crate) count: usize,
    pub(crate) at: usize,
}

impl Group {
    pub(crate) fn len(&self, size: u64) -> usize {
        (size - self.first * LEAF_LEN_MAX as u64).min((self.count * LEAF_LEN_MAX) as u64) as usize
    }
}

#[derive(Debug)]
pub(crate) struct Batch {
    spans: Vec<Span>,
    pub(crate) groups: Vec<Group>,
}

impl Batch {
    fn new(spans: Vec<Span>) -> Self {
        let (mut groups, mut at) = (Vec::new(), 0);
        for span in &spans {
            let Span::Data { first, count } = *span else { continue };
            let mut done = 0;
            while done < count {
                let size = (count - done).min(GROUP_LEAF_COUNT as u64);
                groups.push(Group { first: first + done, count: size as usize, at });
                at += size as usize;
                done += size;
            }
        }
        Self { spans, groups }
    }

    pub(crate) fn leaf_count(&self) -> usize {
        self.groups.last().map_or(0, |g| g.at + g.count)
    }
}

/// Memory: one indirect frame for each level.
#[derive(Debug)]
pub(crate) struct LargeContent {
    size: u64,
    extents: Extents,
    builder: BlobBuilder,
    space: u64,
}

impl LargeContent {
    pub(crate) fn new(size: u64) -> Self {
        Self { size, extents: Extents::new(size), builder: BlobBuilder::new(), space: 0 }
    }

    pub(crate) fn next_batch(&mut self, file: BorrowedFd<'_>) -> Result<Option<Batch>, FileError> {
        let spans = self.extents.batch(file, BATCH_LEAF_COUNT)?;
        Ok((!spans.is_empty()).then(|| Batch::new(spans)))
    }

    /// `leaves`: handles of data leaves, `None` for zeros.
    pub(crate) fn append_batch(
        &mut self,
        frames: &Frames<'_>,
        batch: &Batch,
        previous: Option<PreviousFile<'_>>,
        leaves: &[Option<BlockHandle>],
    ) -> Result<(), Error> {
        let mut put = |_, payload: &[u8]| put_indirect(frames, previous, payload);
        let mut leaves = leaves.iter();
        for span in &batch.spans {
            match *span {
                Span::Hole(count) => self.builder.holes(count, &mut put)?,
                Span::Data { first, count } => {
                    for (n, leaf) in leaves.by_ref().take(count as usize).enumerate() {
                        match leaf {
                            Some(handle) => {
                                self.builder.leaf(*handle, &mut put)?;
                                self.space += leaf_len(first + n as u64, self.size);
                            }
                            None => self.builder.holes(1, &mut put)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(
        self,
        frames: &Frames<'_>,
        previous: Option<PreviousFile<'_>>,
    ) -> Result<(Blob, u64), FileError> {
        let mut put = |_, payload: &[u8]| put_indirect(frames, previous, payload);
        Ok((self.builder.finish(self.size, &mut put)?, self.space))
    }
}

pub(crate) fn read_group(
    frames: &Frames<'_>,
    file: BorrowedFd<'_>,
    size: u64,
    group: &Group,
    previous: Option<PreviousFile<'_>>,
    leaves: &mut [Option<BlockHandle>],
) -> Result<(), FileError> {
    BUFFER.with_borrow_mut(|buffer| {
        let start = group.first * LEAF_LEN_MAX as u64;
        let len = group.len(size);
        if buffer.len() < len {
            buffer.resize(GROUP_LEAF_COUNT * LEAF_LEN_MAX, 0);
        }
        read_exact(file, &mut buffer[..len], start)?;
        for (number, (leaf, handle)) in
            (group.first..).zip(buffer[..len].chunks(LEAF_LEN_MAX).zip(leaves))
        {
            *handle = match previous {
                _ if is_zero(leaf) => None,
                Some(previous) => Some(previous.put_leaf(frames, number, leaf)?),
                None => Some(frames.put(FrameKind::Leaf, leaf)?),
            };
        }
        Ok(())
    })
}

fn read_exact(file: BorrowedFd<'_>, mut buffer: &mut [u8], mut at: u64) -> Result<(), FileError> {
    while !buffer.is_empty() {
        match rustix::io::pread(file, &mut *buffer, at) {
            Ok(0) => return Err(FileError::Changed),
            Ok(len) => {
                buffer = &mut buffer[len..];
                at += len as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(FileError::System { doing: "read", error }),
        }
    }
    Ok(())
}

fn leaf_len(leaf: u64, size: u64) -> u64 {
    (size - leaf * LEAF_LEN_MAX as u64).min(LEAF_LEN_MAX as u64)
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|&b| b == 0)
        && (bytes.len() < 2 || bytes[1..] == bytes[..bytes.len() - 1])
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
