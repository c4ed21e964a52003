use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use vouch_tree::{BlockHandle, FrameKind};

use crate::frame::Frame;
use crate::{Error, Result};

const FRAME_WEIGHT_TYPICAL: u64 = 32 * 1024;

/// The rest is for frames that nobody has read a second time. In the usual 3 % of it, what is fetched
/// ahead would be evicted before it is read.
const HOT_SHARE: f64 = 0.5;

const ADMITTED_ONE_IN: u64 = 16;

/// Trees have different ivs, so their handles must not mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TreeNumber(pub(crate) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tree: TreeNumber,
    handle: BlockHandle,
}

#[derive(Debug, Clone, Copy)]
struct ByMemory;

impl Weighter<Key, Frame> for ByMemory {
    fn weight(&self, _: &Key, frame: &Frame) -> u64 {
        frame.weight()
    }
}

pub(crate) struct MemoryCache {
    cache: Cache<Key, Frame, ByMemory, FixedState>,
    long_read_frames: AtomicU64,
}

impl MemoryCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self::with_seed(bytes_max, getrandom::u64().unwrap_or_default())
    }

    /// `seed`: of the hashes, which decide what is evicted. Random, except in a simulation.
    pub(crate) fn with_seed(bytes_max: u64, seed: u64) -> Self {
        let items = (bytes_max / FRAME_WEIGHT_TYPICAL).clamp(64, 1 << 20) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(bytes_max.max(1))
            .hot_allocation(HOT_SHARE)
            .build()
            .expect("all options are set");
        let hasher = FixedState::with_seed(seed);
        let lifecycle = DefaultLifecycle::default();
        let cache = Cache::with_options(options, ByMemory, hasher, lifecycle);
        Self { cache, long_read_frames: AtomicU64::new(0) }
    }

    pub(crate) fn get(
        &self,
        tree: TreeNumber,
        kind: FrameKind,
        handle: &BlockHandle,
    ) -> Option<Result<Frame>> {
        let frame = self.cache.get(&Key { tree, handle: *handle })?;
        Some(of_kind(frame, kind, handle))
    }

    pub(crate) fn contains(&self, tree: TreeNumber, handle: &BlockHandle) -> bool {
        self.cache.contains_key(&Key { tree, handle: *handle })
    }

    pub(crate) fn insert(&self, tree: TreeNumber, handle: &BlockHandle, frame: Frame) {
        self.cache.insert(Key { tree, handle: *handle }, frame);
    }

    pub(crate) fn remove(&self, tree: TreeNumber, handle: &BlockHandle) {
        self.cache.remove(&Key { tree, handle: *handle });
    }

    /// Runs `fetch` once for all waiting callers. If it fails or is dropped, the next caller runs
    /// its own.
    pub(crate) async fn get_or_fetch(
        &self,
        tree: TreeNumber,
        kind: FrameKind,
        handle: &BlockHandle,
        fetch: impl Future<Output = Result<Frame>>,
    ) -> Result<Frame> {
        let frame = self.cache.get_or_insert_async(&Key { tree, handle: *handle }, fetch).await?;
        of_kind(frame, kind, handle)
    }

    /// True if a frame of a long read may be kept. A full cache keeps one in [`ADMITTED_ONE_IN`]: enough to
    /// follow a program that turns to other files.
    pub(crate) fn admits_of_long_read(&self) -> bool {
        let max = self.cache.capacity();
        // Each shard has some room left, in a small cache much.
        self.cache.weight() < max - max / 4
            || self.long_read_frames.fetch_add(1, Ordering::Relaxed).is_multiple_of(ADMITTED_ONE_IN)
    }

    pub(crate) fn weight(&self) -> u64 {
        self.cache.weight()
    }
}

fn of_kind(frame: Frame, kind: FrameKind, handle: &BlockHandle) -> Result<Frame> {
    if frame.kind() == kind {
        Ok(frame)
    } else {
        Err(Error::Damaged {
            what: format!(
                "frame {handle} has kind {:?} but is referenced as {kind:?}",
                frame.kind()
            ),
        })
    }
}
