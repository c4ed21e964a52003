use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_tree::{Blob, BlobBody, FrameKind, LEAF_LEN_MAX};

use crate::file::blob::LeafPlace;
use crate::file::read_ahead::ReadAhead;
use crate::replica::Priority;
use crate::tree::Source;
use crate::{Result, Tree};

/// A reader of more at once verifies frames of the disk cache sooner itself than another thread does ahead
/// of it. Mounts and NFS clients read less.
const LONG_READ: usize = 1 << 20;

/// An open file. Reads in sequence start read-ahead.
pub struct FileReader {
    tree: Arc<Tree>,
    blob: Blob,
    ahead: Mutex<ReadAhead>,
}

impl Tree {
    /// `blob`: of an inode of this tree. Fetches nothing yet.
    pub fn open_file(self: &Arc<Self>, blob: Blob) -> FileReader {
        FileReader { tree: Arc::clone(self), blob, ahead: Mutex::default() }
    }

    /// `from_disk`: also verifies frames that are in the disk cache.
    fn prefetch_range(self: &Arc<Self>, blob: &Blob, range: &Range<u64>, from_disk: bool) {
        let (first, end) =
            (range.start / LEAF_LEN_MAX as u64, range.end.div_ceil(LEAF_LEN_MAX as u64));
        let (tree, blob) = (Arc::clone(self), blob.clone());
        let deadline = Instant::now() + self.operation_max();
        self.client().runtime.spawn(async move {
            let source = Source::Replicas(Priority::Background, deadline);
            let Ok(Some(places)) = tree.leaf_places(&blob, first..end, source).await else {
                return;
            };
            let leaves = places.into_iter().filter_map(|place| match place {
                LeafPlace::At(handle) if from_disk || !tree.is_cached(&handle) => {
                    Some((FrameKind::Leaf, handle))
                }
                _ => None,
            });
            tree.prefetch(leaves.collect(), LEAF_LEN_MAX);
        });
    }
}

impl FileReader {
    /// As [`Tree::read`].
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.note_read(offset, len);
        self.tree.read(&self.blob, offset, len).await
    }

    /// As [`Tree::read_pieces`].
    pub async fn read_pieces(&self, offset: u64, len: usize) -> Result<Vec<Bytes>> {
        self.note_read(offset, len);
        self.tree.read_pieces(&self.blob, offset, len).await
    }

    /// As [`Tree::try_read`]; may start read-ahead.
    pub fn try_read(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        let answer = self.tree.try_read(&self.blob, offset, len)?;
        self.note_read(offset, len);
        Some(answer)
    }

    /// As [`Tree::try_read_pieces`]; may start read-ahead.
    pub fn try_read_pieces(&self, offset: u64, len: usize) -> Option<Result<Vec<Bytes>>> {
        let answer = self.tree.try_read_pieces(&self.blob, offset, len)?;
        self.note_read(offset, len);
        Some(answer)
    }

    /// What it reads.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Where it reads.
    pub const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    fn note_read(&self, offset: u64, len: usize) {
        // A single frame needs no read-ahead.
        if !matches!(self.blob.body, BlobBody::Tree { .. }) {
            return;
        }
        let options = &self.tree.client().options;
        // A larger window would evict its own frames from the memory cache.
        let window_max = options.read_ahead_bytes_max.min(options.memory_cache_bytes / 2);
        let (ahead, behind) = {
            let mut state = self.ahead.lock();
            let ahead = state.on_read(
                offset,
                len as u64,
                self.blob.size,
                window_max,
                self.tree.known_layout(),
            );
            (ahead, state.behind(offset, len as u64, window_max))
        };
        for range in ahead {
            self.tree.prefetch_range(&self.blob, &range, len <= LONG_READ);
        }
        // A large file that is read in sequence leaves the memory cache to others.
        if let Some(range) = behind.filter(|_| self.blob.size > options.memory_cache_bytes / 4) {
            self.forget(&range);
        }
    }

    fn forget(&self, range: &Range<u64>) {
        let leaf_len = LEAF_LEN_MAX as u64;
        for leaf in range.start / leaf_len..range.end / leaf_len {
            if let Some(LeafPlace::At(handle)) = self.tree.local_leaf_place(&self.blob, leaf) {
                self.tree.forget_in_memory(&handle);
            }
        }
    }
}
