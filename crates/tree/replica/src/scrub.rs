//! Finds rotten bytes before clients need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::trees::{Tree, Trees};

#[derive(Debug, Default)]
pub(super) struct ScrubCounts {
    pub(super) bytes: AtomicU64,
    pub(super) passes: AtomicU64,
    /// Damage in the last pass.
    pub(super) damaged_frames: AtomicU64,
}

pub(super) struct Scrubber {
    trees: Arc<Trees>,
    bytes_per_s: u64,
    stop: Box<dyn Fn() -> bool + Send>,
    due: Instant,
}

impl Scrubber {
    pub(super) fn new(
        trees: Arc<Trees>,
        bytes_per_s: u64,
        stop: impl Fn() -> bool + Send + 'static,
    ) -> Self {
        Self { trees, bytes_per_s: bytes_per_s.max(1), stop: Box::new(stop), due: Instant::now() }
    }

    pub(super) fn run(mut self) {
        loop {
            // A cache verifies what it reads.
            for tree in self.trees.all().iter().filter(|tree| tree.cache.is_none()) {
                self.scrub(tree);
            }
            if !self.sleep(PASS_PAUSE) {
                return;
            }
        }
    }

    fn scrub(&mut self, tree: &Tree) {
        let mut scrub = match tree.snapshot().scrub() {
            Ok(scrub) => scrub,
            Err(error) => {
                return tracing::warn!(path = %tree.path().display(), %error, "the index can't be read; no scrub");
            }
        };
        let mut damaged = 0;
        while let Some(result) = scrub.next(&mut |len| self.pace(tree, len)) {
            match result {
                Ok(pack) => {
                    damaged += pack.damaged_frames;
                    tree.note_scrubbed(
                        &pack.path,
                        pack.problem.as_deref().filter(|_| pack.damaged_frames > 0),
                    );
                }
                Err(error) => {
                    damaged += 1;
                    tracing::error!(path = %tree.path().display(), %error, "scrub: a pack can't be read");
                }
            }
        }
        if !(self.stop)() {
            tree.scrubbed().damaged_frames.store(damaged, Ordering::Relaxed);
            tree.scrubbed().passes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pace(&mut self, tree: &Tree, len: u64) -> bool {
        tree.scrubbed().bytes.fetch_add(len, Ordering::Relaxed);
        let now = Instant::now();
        // Does not make up for idle time.
        self.due =
            self.due.max(now) + Duration::from_secs_f64(len as f64 / self.bytes_per_s as f64);
        self.due - now < WAIT_MIN || self.sleep(self.due - now)
    }

    fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !(self.stop)() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(STOP_STEP));
        }
        false
    }
}

const WAIT_MIN: Duration = Duration::from_millis(20);

const PASS_PAUSE: Duration = Duration::from_secs(60);

const STOP_STEP: Duration = Duration::from_millis(100);
