//! Reading one open file, with read-ahead while the reads are sequential.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_tree::{Blob, BlobBody, FrameKind, LEAF_LEN_MAX};

use crate::file::blob::LeafPlace;
use crate::file::read_ahead::ReadAhead;
use crate::replica::Priority;
use crate::{Result, Tree};

/// An open file. Reads through it may come from several threads at once.
pub struct FileReader {
    tree: Arc<Tree>,
    blob: Blob,
    ahead: Mutex<ReadAhead>,
}

impl Tree {
    /// A reader of `blob`: one for each open file.
    pub fn open_file(self: &Arc<Self>, blob: Blob) -> FileReader {
        FileReader { tree: Arc::clone(self), blob, ahead: Mutex::default() }
    }

    /// Fetches the leaves of a range that nobody waits for yet: indirect frames first, then all
    /// leaves at once.
    fn prefetch_range(self: &Arc<Self>, blob: &Blob, range: &Range<u64>) {
        let (first, end) = (range.start / LEAF_LEN_MAX as u64, range.end.div_ceil(LEAF_LEN_MAX as u64));
        let (tree, blob) = (Arc::clone(self), blob.clone());
        let deadline = Instant::now() + self.operation_max();
        self.client().runtime.spawn(async move {
            let Ok(places) = tree.leaf_places(&blob, first, end - first, Priority::Background, deadline).await else { return };
            let leaves = places.into_iter().filter_map(|place| match place {
                LeafPlace::At(handle) => Some((FrameKind::Leaf, handle)),
                LeafPlace::Hole => None,
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

    /// As [`Tree::try_read`]; may begin to fetch what follows.
    pub fn try_read(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        let answer = self.tree.try_read(&self.blob, offset, len);
        // Where the network is needed, the call that follows takes note.
        if answer.is_some() {
            self.note_read(offset, len);
        }
        answer
    }

    /// What is read.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }

    /// The tree that it is in.
    pub const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    fn note_read(&self, offset: u64, len: usize) {
        // What lies in one frame needs no second.
        if !matches!(self.blob.body, BlobBody::Tree { .. }) {
            return;
        }
        let options = &self.tree.client().options;
        // Half the cache at most, or what is fetched ahead would push itself out.
        let window_max = options.read_ahead_bytes_max.min(options.memory_cache_bytes / 2);
        let range = self.ahead.lock().on_read(offset, len as u64, self.blob.size, window_max);
        if let Some(range) = range {
            self.tree.prefetch_range(&self.blob, &range);
        }
    }
}
