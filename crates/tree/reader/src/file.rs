use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use vouch_tree::{Blob, Content};
use vouch_tree_client::{FileReader, Tree};

use crate::tree::find;
use crate::{Error, Found, Interrupt, ReadTree, Result, Session};

/// An open regular file, with read-ahead.
pub struct ReadFile {
    session: Arc<Session>,
    path: Vec<u8>,
    reader: Option<FileReader>,
}

/// Bytes of a file; `None` is its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeRequest {
    /// From the root; symbolic links are followed.
    pub path: Vec<u8>,
    /// First byte.
    pub start: u64,
    /// After the last byte.
    pub end: Option<u64>,
}

/// Enough to fill a fast link with small files; each reads 32 MiB at once.
const RANGES_AT_ONCE: usize = 64;

impl ReadFile {
    pub(crate) fn open(session: &Arc<Session>, tree: &Arc<Tree>, found: Found) -> Result<Self> {
        let blob = regular(&found)?;
        let reader = Some(tree.open_file(blob.clone()));
        Ok(Self { session: Arc::clone(session), path: found.path, reader })
    }

    fn reader(&self) -> &FileReader {
        self.reader.as_ref().expect("only `drop` takes the reader")
    }

    /// From the root, without symbolic links.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.reader().blob().size
    }

    /// The content's identity.
    pub fn blob(&self) -> &Blob {
        self.reader().blob()
    }

    /// Verified bytes in pieces that join; shorter than `len` only at the end of the file.
    pub fn read(&self, offset: u64, len: usize, interrupt: Interrupt<'_>) -> Result<Vec<Bytes>> {
        self.session.check_process()?;
        if let Some(cached) = self.reader().try_read_pieces(offset, len) {
            return Ok(cached?);
        }
        self.session.run(interrupt, async { Ok(self.reader().read_pieces(offset, len).await?) })
    }
}

impl Drop for ReadFile {
    fn drop(&mut self) {
        let reader = self.reader.take();
        self.session.release(reader);
    }
}

impl ReadTree {
    /// Reads ranges of many files at once. One result for each request, in their order.
    pub fn read_ranges(
        &self,
        requests: &[RangeRequest],
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<Result<Vec<Bytes>>>> {
        let revision = self.revision();
        let read = |request: &'_ RangeRequest| {
            let (request, revision) = (request.clone(), Arc::clone(&revision));
            async move {
                let found = find(self.tree(), &revision, &request.path, true).await?;
                let blob = regular(&found)?;
                let range: Range<u64> =
                    request.start..request.end.unwrap_or(u64::MAX).min(blob.size);
                let len = range.end.saturating_sub(range.start);
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                Ok(self.tree().read_pieces(blob, range.start, len).await?)
            }
        };
        self.session().run(interrupt, async {
            Ok(futures_util::stream::iter(requests.iter().map(read))
                .buffered(RANGES_AT_ONCE)
                .collect()
                .await)
        })
    }
}

fn regular(found: &Found) -> Result<&Blob> {
    match &found.inode.content {
        Content::Regular { blob, .. } => Ok(blob),
        Content::Directory { .. } => Err(Error::IsADirectory { path: found.path.clone() }),
        _ => Err(Error::NotRegular { path: found.path.clone() }),
    }
}
