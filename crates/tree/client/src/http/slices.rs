//! Files in slices at fixed offsets, so that web caches see equal requests from all clients.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_tree_store::RemoteFile;

use super::fetch::{FetchError, Fetcher};
use super::slice_ahead::SliceAhead;
use super::transfer::Transfer;

pub(super) struct Slices {
    fetcher: Arc<Fetcher>,
    kept: Mutex<CachedSlice>,
}

#[derive(Default)]
struct CachedSlice {
    data: Pool,
    /// Content does not evict slices of the index and of metadata.
    metadata: Pool,
    ahead: HashMap<Arc<str>, SliceAhead>,
}

#[derive(Default)]
struct Pool {
    slices: HashMap<SliceKey, KeptSlice>,
    /// The oldest first. Some are not kept any more.
    order: VecDeque<SliceKey>,
    len: u64,
    doubted: HashMap<SliceKey, Instant>,
}

struct KeptSlice {
    transfer: Transfer,
    len: u64,
    /// Bytes that nobody has read.
    unread: u64,
}

type SliceKey = (Arc<str>, u64);

/// Slices that are fetched or kept for some reads.
pub(super) struct Started(HashMap<SliceKey, Transfer>);

impl Slices {
    pub(super) fn new(fetcher: Arc<Fetcher>) -> Self {
        Self { fetcher, kept: Mutex::default() }
    }

    pub(super) async fn read(
        &self,
        file: &RemoteFile,
        range: &Range<u64>,
    ) -> Result<Bytes, FetchError> {
        self.bytes(&self.start(&[(file, range.clone())]), file, range).await
    }

    pub(super) async fn read_many(
        &self,
        wanted: &[(&RemoteFile, Range<u64>)],
    ) -> Vec<Result<Bytes, FetchError>> {
        let started = self.start(wanted);
        let mut results = Vec::with_capacity(wanted.len());
        for (file, range) in wanted {
            results.push(self.bytes(&started, file, range).await);
        }
        results
    }

    /// Waits for these bytes only, not for the rest of the started slices.
    pub(super) async fn bytes(
        &self,
        started: &Started,
        file: &RemoteFile,
        range: &Range<u64>,
    ) -> Result<Bytes, FetchError> {
        if range.end > file.len || range.end.saturating_sub(range.start) > READ_LEN_MAX {
            return Err(FetchError::Other(
                file.path.clone(),
                "a record leads beyond the end".into(),
            ));
        }
        let (len, path) = (slice_len(file), Arc::<str>::from(file.path.as_str()));
        let mut whole = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let key = (Arc::clone(&path), at / len);
            let end = range.end.min((key.1 + 1) * len);
            let Some(transfer) = started.0.get(&key) else {
                return Err(FetchError::NotFound(file.path.clone(), "not requested".into()));
            };
            if let Err(error) = transfer.read(&(at..end), &mut whole).await {
                self.forget(file, &key, transfer);
                return Err(error);
            }
            if file.is_data {
                self.kept.lock().data.note_read(&key, end - at);
            }
            at = end;
        }
        Ok(whole.into())
    }

    fn forget(&self, file: &RemoteFile, key: &SliceKey, transfer: &Transfer) {
        let mut kept = self.kept.lock();
        let pool = kept.pool(file);
        if pool.slices.get(key).is_some_and(|kept| kept.transfer.is_same(transfer)) {
            pool.remove(key);
        }
    }

    /// The next read fetches this range again, once: the first time may have been a transmission
    /// error.
    pub(super) fn doubt(&self, file: &RemoteFile, range: &Range<u64>) {
        let now = Instant::now();
        let path = Arc::<str>::from(file.path.as_str());
        let mut kept = self.kept.lock();
        for number in numbers(file, range) {
            kept.pool(file).doubt((Arc::clone(&path), number), now);
        }
    }

    /// Requests the missing slices of `wanted`, adjacent ones together.
    pub(super) fn start(&self, wanted: &[(&RemoteFile, Range<u64>)]) -> Started {
        let mut needed: Vec<(&RemoteFile, u64)> = Vec::new();
        for (file, range) in wanted {
            needed.extend(numbers(file, range).map(|number| (*file, number)));
        }
        needed.sort_unstable_by(|a, b| (&a.0.path, a.1).cmp(&(&b.0.path, b.1)));
        needed.dedup();
        let mut slices = HashMap::new();
        let mut kept = self.kept.lock();
        let mut missing: Vec<(&RemoteFile, Range<u64>)> = Vec::new();
        let demands = needed.clone();
        for (file, number) in needed {
            let key = (Arc::<str>::from(file.path.as_str()), number);
            let found = kept.pool(file).slices.get(&key).map(|kept| kept.transfer.clone());
            // One that was fetched ahead may have failed long ago.
            if let Some(transfer) = found.filter(|transfer| !transfer.has_failed()) {
                slices.insert(key, transfer);
                continue;
            }
            match missing.last_mut() {
                Some((last, numbers))
                    if *last == file
                        && numbers.end == number
                        && (number - numbers.start + 1) * slice_len(file) <= TRANSFER_LEN_MAX =>
                {
                    numbers.end += 1;
                }
                _ => missing.push((file, number..number + 1)),
            }
        }
        for (file, numbers) in missing {
            let transfer = self.fetch(&mut kept, file, numbers.clone());
            let path = Arc::<str>::from(file.path.as_str());
            slices.extend(numbers.map(|number| ((Arc::clone(&path), number), transfer.clone())));
        }
        for (file, number) in
            demands.into_iter().filter(|(file, _)| file.is_data && slice_len(file) < file.len)
        {
            for next in kept.ahead(file, number) {
                self.fetch(&mut kept, file, next..next + 1);
            }
        }
        Started(slices)
    }

    fn fetch(&self, kept: &mut CachedSlice, file: &RemoteFile, numbers: Range<u64>) -> Transfer {
        let len = slice_len(file);
        let range = numbers.start * len..(numbers.end * len).min(file.len);
        let path = Arc::<str>::from(file.path.as_str());
        let is_doubted = numbers
            .clone()
            .any(|number| kept.pool(file).doubted.contains_key(&(Arc::clone(&path), number)));
        let transfer = Transfer::start(&self.fetcher, file, range.clone(), is_doubted);
        for number in numbers {
            kept.pool(file).add(
                (Arc::clone(&path), number),
                transfer.clone(),
                len.min(range.end - number * len),
            );
        }
        transfer
    }
}

impl CachedSlice {
    fn pool(&mut self, file: &RemoteFile) -> &mut Pool {
        if file.is_data { &mut self.data } else { &mut self.metadata }
    }

    fn ahead(&mut self, file: &RemoteFile, number: u64) -> Vec<u64> {
        if !self.ahead.contains_key(file.path.as_str()) && self.ahead.len() >= AHEAD_PACKS_MAX {
            self.ahead.clear();
        }
        let path = Arc::<str>::from(file.path.as_str());
        let mut ahead = self
            .ahead
            .entry(Arc::clone(&path))
            .or_default()
            .on_demand(number, file.len.div_ceil(slice_len(file)));
        ahead.retain(|number| !self.data.slices.contains_key(&(Arc::clone(&path), *number)));
        ahead
    }
}

impl Pool {
    fn add(&mut self, key: SliceKey, transfer: Transfer, len: u64) {
        self.remove(&key);
        self.slices.insert(key.clone(), KeptSlice { transfer, len, unread: len });
        self.order.push_back(key);
        self.len += len;
        while self.len > KEPT_LEN_MAX || self.order.len() > KEPT_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(&oldest);
        }
    }

    fn doubt(&mut self, key: SliceKey, now: Instant) {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < DOUBT_TIME;
        if self.doubted.get(&key).is_some_and(is_recent) {
            return;
        }
        if self.doubted.len() >= DOUBTED_MAX {
            self.doubted.retain(|_, at| is_recent(at));
        }
        if self.doubted.len() < DOUBTED_MAX {
            self.remove(&key);
            self.doubted.insert(key, now);
        }
    }

    fn remove(&mut self, key: &SliceKey) {
        if let Some(slice) = self.slices.remove(key) {
            self.len -= slice.len;
        }
    }

    /// Content that was read is cached as frames, so its slice makes room, unless it is doubted.
    fn note_read(&mut self, key: &SliceKey, len: u64) {
        if !self.doubted.contains_key(key)
            && let Some(slice) = self.slices.get_mut(key)
        {
            slice.unread = slice.unread.saturating_sub(len);
            // The headers between large frames are never read.
            if slice.unread <= slice.len / 1024 {
                self.remove(key);
            }
        }
    }
}

fn numbers(file: &RemoteFile, range: &Range<u64>) -> Range<u64> {
    if range.start >= range.end || range.end > file.len || range.end - range.start > READ_LEN_MAX {
        return 0..0;
    }
    let len = slice_len(file);
    range.start / len..(range.end - 1) / len + 1
}

/// Small for metadata and index, large for content. A small file is one slice.
fn slice_len(file: &RemoteFile) -> u64 {
    let len = if file.is_data { DATA_SLICE_LEN } else { METADATA_SLICE_LEN };
    if file.len <= WHOLE_LEN_MAX { file.len.max(1) } else { len }
}

const METADATA_SLICE_LEN: u64 = 256 << 10;
const DATA_SLICE_LEN: u64 = 2 << 20;
const WHOLE_LEN_MAX: u64 = 2 << 20;
const TRANSFER_LEN_MAX: u64 = 8 << 20;
const READ_LEN_MAX: u64 = 16 << 20;
/// For each pool. Slices serve only the next reads: verified frames have their own caches.
const KEPT_LEN_MAX: u64 = 64 << 20;
const AHEAD_PACKS_MAX: usize = 1024;
const KEPT_MAX: usize = 4096;
/// A wrong slice is fetched again once in this time.
const DOUBT_TIME: Duration = Duration::from_secs(60);
const DOUBTED_MAX: usize = 4096;
