//! A response in progress: its bytes can be read as soon as they arrive.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;
use vouch_tree_store::RemoteFile;

use super::fetch::{FetchError, Fetcher, RangeRequest, Sink};

/// Bytes of a file that one request fetches. Cheap to clone.
#[derive(Clone)]
pub(super) struct Transfer {
    start: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    /// Wakes readers in their order, so that a simulation is the same each time.
    changed: Notify,
}

#[derive(Default)]
struct Progress {
    /// Each with its place in the transfer.
    chunks: Vec<(u64, Bytes)>,
    len: u64,
    end: Option<Result<(), FetchError>>,
}

impl Transfer {
    /// `is_anew`: no cache answers from what it keeps.
    /// The request goes on if nobody waits, so that a silent proxy counts as failed.
    pub(super) fn start(
        fetcher: &Arc<Fetcher>,
        file: &RemoteFile,
        range: Range<u64>,
        is_anew: bool,
    ) -> Self {
        let shared = Arc::<Shared>::default();
        let mut chunks = Chunks { shared: Arc::clone(&shared), small: BytesMut::new() };
        let (fetcher, file, start) = (Arc::clone(fetcher), file.clone(), range.start);
        tokio::spawn(async move {
            let end =
                fetcher.get_into(RangeRequest::part(&file, &range, is_anew), &mut chunks).await;
            chunks.flush();
            chunks.end(end);
        });
        Self { start, shared }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.shared.progress.lock().end.as_ref().is_some_and(Result::is_err)
    }

    pub(super) async fn read(
        &self,
        range: &Range<u64>,
        to: &mut Vec<u8>,
    ) -> Result<(), FetchError> {
        let range = range.start - self.start..range.end - self.start;
        loop {
            let mut changed = pin!(self.shared.changed.notified());
            // Before the look: a change in between is noticed.
            changed.as_mut().enable();
            let parts = self.shared.progress.lock().parts(&range);
            if let Some(parts) = parts {
                parts?.iter().for_each(|part| to.extend_from_slice(part));
                return Ok(());
            }
            changed.await;
        }
    }
}

impl Progress {
    fn parts(&self, range: &Range<u64>) -> Option<Result<Vec<Bytes>, FetchError>> {
        if self.len < range.end {
            let end = self.end.as_ref()?.clone();
            return Some(Err(end.err().unwrap_or_else(|| {
                FetchError::Other("request".into(), "the response is too short".into())
            })));
        }
        let first =
            self.chunks.partition_point(|(start, chunk)| start + chunk.len() as u64 <= range.start);
        let chunks = self.chunks[first..].iter().take_while(|(start, _)| *start < range.end);
        Some(Ok(chunks
            .map(|(start, chunk)| chunk.slice(within(*start, chunk.len(), range)))
            .collect()))
    }
}

fn within(start: u64, len: usize, range: &Range<u64>) -> Range<usize> {
    range.start.saturating_sub(start) as usize..(range.end - start).min(len as u64) as usize
}

struct Chunks {
    shared: Arc<Shared>,
    small: BytesMut,
}

impl Chunks {
    fn flush(&mut self) {
        let small = self.small.split().freeze();
        self.push(small);
    }

    fn push(&self, chunk: Bytes) {
        if !chunk.is_empty() {
            {
                let mut progress = self.shared.progress.lock();
                let start = progress.len;
                progress.len += chunk.len() as u64;
                progress.chunks.push((start, chunk));
            }
            self.shared.changed.notify_waiters();
        }
    }

    fn end(&self, end: Result<(), FetchError>) {
        self.shared.progress.lock().end.get_or_insert(end);
        self.shared.changed.notify_waiters();
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.end(Err(FetchError::Other("request".into(), "given up".into())));
    }
}

impl Sink for Chunks {
    fn begin(&mut self, _: Option<u64>) -> u64 {
        self.flush();
        self.shared.progress.lock().len
    }

    fn take(&mut self, chunk: Bytes) {
        if chunk.len() < CHUNK_LEN_MIN {
            self.small.extend_from_slice(&chunk);
            if self.small.len() < CHUNK_LEN_MIN {
                return;
            }
            self.flush();
        } else {
            self.flush();
            self.push(chunk);
        }
    }

    /// Readers have copies of what they took, and verify it.
    fn discard(&mut self) {
        self.small.clear();
        let mut progress = self.shared.progress.lock();
        (progress.chunks, progress.len) = (Vec::new(), 0);
    }
}

const CHUNK_LEN_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_are_read_across_chunks_of_any_length() {
        let whole: Vec<u8> = (0..60_000u32).map(|number| (number / 7) as u8).collect();
        let shared = Arc::<Shared>::default();
        let transfer = Transfer { start: 1000, shared: Arc::clone(&shared) };
        let mut chunks = Chunks { shared, small: BytesMut::new() };
        let (mut at, mut lens) = (0, [1usize, 4095, 4096, 9000, 0, 3].into_iter().cycle());
        while at < whole.len() {
            let end = whole.len().min(at + lens.next().unwrap());
            chunks.take(Bytes::copy_from_slice(&whole[at..end]));
            at = end;
        }
        chunks.flush();
        chunks.end(Ok(()));
        for (start, end) in
            [(0, 1), (0, 60_000), (4095, 4097), (59_999, 60_000), (12_345, 54_321), (7, 7)]
        {
            let mut read = Vec::new();
            transfer.read(&(1000 + start as u64..1000 + end as u64), &mut read).await.unwrap();
            assert_eq!(read, whole[start..end], "{start}..{end}");
        }
        assert!(transfer.read(&(1000..61_001), &mut Vec::new()).await.is_err(), "beyond the end");
    }
}
