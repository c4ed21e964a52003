//! Files in slices at fixed offsets: concurrent reads share requests, and web caches see equal
//! requests from all clients.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use parking_lot::Mutex;
use vouch_tree_store::RemoteFile;

use super::fetch::{FetchError, Fetcher};
use super::spawned;

pub(super) struct Slices {
    fetcher: Arc<Fetcher>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    slices: HashMap<SliceKey, Slice>,
    /// Oldest first.
    order: VecDeque<(SliceKey, u64)>,
    len: u64,
}

type SliceKey = (Arc<str>, u64);

/// One request for adjacent slices of a file.
type Transfer = Shared<BoxFuture<'static, Result<Bytes, FetchError>>>;

#[derive(Clone)]
struct Slice {
    transfer: Transfer,
    /// Offset in the file.
    start: u64,
}

impl Slices {
    pub(super) fn new(fetcher: Arc<Fetcher>) -> Self {
        Self { fetcher, kept: Mutex::default() }
    }

    /// Reads any range.
    pub(super) async fn read(&self, file: &RemoteFile, range: &Range<u64>) -> Result<Bytes, FetchError> {
        let mut found = self.read_many(&[(file, range.clone())]).await;
        found.pop().unwrap_or_else(|| Err(FetchError::NotFound(file.path.clone())))
    }

    pub(super) async fn read_many(&self, wanted: &[(&RemoteFile, Range<u64>)]) -> Vec<Result<Bytes, FetchError>> {
        let slices = self.start(wanted);
        let mut results = Vec::with_capacity(wanted.len());
        for (file, range) in wanted {
            results.push(if range.end > file.len || range.end - range.start > READ_LEN_MAX {
                Err(FetchError::Other(file.path.clone(), "a record leads beyond the end".into()))
            } else {
                self.assemble(file, range, &slices).await
            });
        }
        results
    }

    async fn assemble(&self, file: &RemoteFile, range: &Range<u64>, slices: &HashMap<SliceKey, Slice>) -> Result<Bytes, FetchError> {
        let (len, path) = (slice_len(file), Arc::<str>::from(file.path.as_str()));
        let mut parts = Vec::with_capacity(1);
        let mut at = range.start;
        while at < range.end {
            let key = (Arc::clone(&path), at / len);
            let end = range.end.min((key.1 + 1) * len);
            let Some(slice) = slices.get(&key) else { return Err(FetchError::NotFound(file.path.clone())) };
            let bytes = match slice.transfer.clone().await {
                Ok(bytes) => bytes,
                Err(error) => {
                    // The next read retries.
                    self.forget(&key, slice);
                    return Err(error);
                }
            };
            parts.push(bytes.slice((at - slice.start) as usize..(end - slice.start) as usize));
            at = end;
        }
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
        parts.iter().for_each(|part| whole.extend_from_slice(part));
        Ok(whole.freeze())
    }

    fn forget(&self, key: &SliceKey, slice: &Slice) {
        let mut kept = self.kept.lock();
        if kept.slices.get(key).is_some_and(|kept| kept.transfer.ptr_eq(&slice.transfer)) {
            kept.slices.remove(key);
        }
    }

    fn start(&self, wanted: &[(&RemoteFile, Range<u64>)]) -> HashMap<SliceKey, Slice> {
        let mut needed: Vec<(&RemoteFile, u64)> = Vec::new();
        for (file, range) in wanted {
            if range.start < range.end && range.end <= file.len && range.end - range.start <= READ_LEN_MAX {
                let len = slice_len(file);
                needed.extend((range.start / len..=(range.end - 1) / len).map(|number| (*file, number)));
            }
        }
        needed.sort_unstable_by(|a, b| (&a.0.path, a.1).cmp(&(&b.0.path, b.1)));
        needed.dedup();
        let mut slices = HashMap::new();
        let mut kept = self.kept.lock();
        let mut missing: Vec<(&RemoteFile, Range<u64>)> = Vec::new();
        for (file, number) in needed {
            let key = (Arc::<str>::from(file.path.as_str()), number);
            if let Some(slice) = kept.slices.get(&key) {
                slices.insert(key, slice.clone());
                continue;
            }
            match missing.last_mut() {
                Some((last, numbers))
                    if *last == file && numbers.end == number && (number - numbers.start + 1) * slice_len(file) <= TRANSFER_LEN_MAX =>
                {
                    numbers.end += 1;
                }
                _ => missing.push((file, number..number + 1)),
            }
        }
        for (file, numbers) in missing {
            let len = slice_len(file);
            let range = numbers.start * len..(numbers.end * len).min(file.len);
            let slice = Slice { start: range.start, transfer: self.transfer(file, range.clone()) };
            let path = Arc::<str>::from(file.path.as_str());
            for number in numbers {
                let key = (Arc::clone(&path), number);
                slices.insert(key.clone(), slice.clone());
                kept.add(key, slice.clone(), len.min(range.end - number * len));
            }
        }
        slices
    }

    fn transfer(&self, file: &RemoteFile, range: Range<u64>) -> Transfer {
        let (fetcher, file) = (Arc::clone(&self.fetcher), file.clone());
        let whole = range == (0..file.len);
        let task = tokio::spawn(async move {
            // Some caches keep whole files only.
            let bytes = fetcher.get(&file.path, None, (!whole).then_some(&range), file.len).await?;
            if bytes.len() as u64 != range.end - range.start {
                return Err(FetchError::Other(file.path, "the file does not have the length in the manifest".into()));
            }
            Ok(bytes)
        });
        spawned(task).boxed().shared()
    }
}

impl Kept {
    fn add(&mut self, key: SliceKey, slice: Slice, len: u64) {
        self.slices.insert(key.clone(), slice);
        self.order.push_back((key, len));
        self.len += len;
        while self.len > KEPT_LEN_MAX
            && let Some((oldest, len)) = self.order.pop_front()
        {
            self.slices.remove(&oldest);
            self.len -= len;
        }
    }
}

/// Small for metadata and index, large for content. A small file is one slice.
fn slice_len(file: &RemoteFile) -> u64 {
    let len = if file.is_data { DATA_SLICE_LEN } else { METADATA_SLICE_LEN };
    if file.len <= WHOLE_LEN_MAX { file.len.max(1) } else { len }
}

const METADATA_SLICE_LEN: u64 = 256 << 10;
const DATA_SLICE_LEN: u64 = 2 << 20;
/// Files up to this length are one request.
const WHOLE_LEN_MAX: u64 = 2 << 20;
/// Longest request.
const TRANSFER_LEN_MAX: u64 = 8 << 20;
const READ_LEN_MAX: u64 = 16 << 20;
/// Slices serve only the next reads: verified frames have their own caches.
const KEPT_LEN_MAX: u64 = 64 << 20;
