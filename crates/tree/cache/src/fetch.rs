use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::cache::TreeCache;
use crate::pack::{CachedPack, MissingFrames};

type FrameKey = (u64, usize);

pub(crate) struct FetchesInProgress {
    waiting: Mutex<HashMap<FrameKey, Vec<Arc<Waiter>>>>,
    /// 32 MiB in memory.
    frames: Semaphore,
}

impl Default for FetchesInProgress {
    fn default() -> Self {
        Self { waiting: Mutex::default(), frames: Semaphore::new(FRAMES_MAX) }
    }
}

type Done = Box<dyn FnOnce(bool) + Send>;

struct Waiter {
    left: AtomicUsize,
    has_failed: AtomicBool,
    done: Mutex<Option<Done>>,
}

impl Waiter {
    fn note(&self, is_present: bool) {
        if !is_present {
            self.has_failed.store(true, Ordering::Release);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(done) = self.done.lock().take()
        {
            done(!self.has_failed.load(Ordering::Acquire));
        }
    }
}

impl TreeCache {
    /// Joins fetches in progress, then calls `done`. Each round of `AT_ONCE_MAX` frames ends within
    /// the client's deadline.
    pub fn fetch(
        self: &Arc<Self>,
        wanted: Vec<MissingFrames>,
        done: impl FnOnce(bool) + Send + 'static,
    ) {
        let count = wanted.iter().map(|wanted| wanted.frames.len()).sum::<usize>();
        // One more, so that it does not end before all are counted.
        let waiter = Arc::new(Waiter {
            left: AtomicUsize::new(count + 1),
            has_failed: AtomicBool::new(false),
            done: Mutex::new(Some(Box::new(done))),
        });
        let mut own = Vec::new();
        {
            let mut waiting = self.in_progress.waiting.lock();
            for MissingFrames { pack, frames } in wanted {
                for frame in frames {
                    match waiting.get_mut(&(pack.serial, frame)) {
                        Some(others) => others.push(Arc::clone(&waiter)),
                        None if pack.is_present(frame) => waiter.note(true),
                        None => {
                            waiting.insert((pack.serial, frame), vec![Arc::clone(&waiter)]);
                            own.push((Arc::clone(&pack), frame));
                        }
                    }
                }
            }
        }
        waiter.note(true);
        if own.is_empty() {
            return;
        }
        let cache = Arc::clone(self);
        self.runtime.spawn(async move {
            let fetches = stream::iter(own).map(|(pack, frame)| {
                let cache = Arc::clone(&cache);
                async move {
                    let is_present = cache.fetch_one(&pack, frame).await;
                    let waiters = cache.in_progress.waiting.lock().remove(&(pack.serial, frame));
                    waiters.into_iter().flatten().for_each(|waiter| waiter.note(is_present));
                }
            });
            fetches.buffer_unordered(AT_ONCE_MAX).collect::<()>().await;
        });
    }

    async fn fetch_one(&self, pack: &Arc<CachedPack>, frame: usize) -> bool {
        let Ok(_permit) = self.in_progress.frames.acquire().await else { return false };
        let place = &pack.table.places[frame];
        let tree = self.tree.read().clone();
        let Some(tree) = tree else {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let stored = match tree.fetch_stored(&place.handle, place.len as usize).await {
            Ok(stored) if stored.len() == place.len as usize => stored,
            Ok(_) => {
                tracing::warn!(handle = %place.handle, "the origin's index has a wrong length of this frame");
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Err(error) => {
                tracing::debug!(handle = %place.handle, %error, "a frame can't be fetched");
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        self.counts.fetched.fetch_add(1, Ordering::Relaxed);
        self.counts.fetched_len.fetch_add(stored.len() as u64, Ordering::Relaxed);
        let mut written = pack.write(frame, &stored);
        if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
            && self.evict_oldest(pack.serial)
        {
            written = pack.write(frame, &stored);
        }
        match written {
            Ok(growth) => self.note_growth(pack, growth),
            Err(error) => {
                tracing::error!(dir = %self.dir().display(), %error, "the cache can't be written");
                return false;
            }
        }
        true
    }
}

const AT_ONCE_MAX: usize = 64;

const FRAMES_MAX: usize = 256;
