//! What is done with closed segments behind the writer: indexed, compressed, and removed when they are too old.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use super::super::index::is_indexed;
use super::super::prune::{PRUNED, prune};
use super::super::{Disk, SegmentFile, build_index, compress, segments};
use super::{Policy, Shared, now_ns};
use crate::Record;
use crate::record::{Act, Class};

/// Whether old segments are still removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tidying {
    #[default]
    GoesOn,
    Ended,
}

impl Shared {
    /// From now on none are removed. What is being removed is waited for, but not for long where the disk takes no record of it.
    pub(super) fn end_tidying(&self) {
        if let Some(mut turn) = self.tidying.try_lock_for(TIDYING_MAX) {
            *turn = Tidying::Ended;
        }
    }

    /// Builds indexes that a crash, or somebody, has taken away. The last segment is being written.
    fn index_left(&self, directory: &Path) {
        let files = segments(directory).unwrap_or_default();
        for file in files.iter().rev().skip(1) {
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            // One that can't be read is for `verify` to complain of; one that isn't compressed comes by itself.
            if file.packed && matches!(is_indexed(file), Ok(false)) {
                index(file);
            }
        }
    }

    /// Indexes and compresses what was closed and removes what is too old.
    pub(super) fn keep_house(&self, disk: &dyn Disk, directory: &Path, closed: &Receiver<SegmentFile>) {
        // Records of operations come first: what this thread does can wait. Where it may not be lowered, it goes on as it is.
        let _ = rustix::process::setpriority_process(None, HOUSE_NICE);
        self.index_left(directory);
        loop {
            let stop = match closed.recv_timeout(HOUSE_STEP) {
                Ok(segment) => {
                    index(&segment);
                    if self.keeping.compress
                        && let Err(error) = compress(disk, &segment)
                    {
                        tracing::warn!(%error, segment = segment.number, "a closed segment of the audit trail stays uncompressed");
                    }
                    false
                }
                Err(mpsc::RecvTimeoutError::Timeout) => false,
                Err(mpsc::RecvTimeoutError::Disconnected) => true,
            };
            if stop {
                return;
            }
            // Once the trail ends nobody writes what would be said of it: the next start removes it.
            let turn = self.tidying.lock();
            if *turn == Tidying::Ended {
                continue;
            }
            match prune(disk, directory, &self.keeping.retention, now_ns(), |last| self.tell_removal(last)) {
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "old segments of the audit trail can't be removed"),
            }
        }
    }
}

impl Shared {
    /// Records that segments up to this one are removed, and waits until that is durable: what is missing without it is a fault.
    fn tell_removal(&self, last: u64) -> bool {
        let detail = format!("{PRUNED}{last}; their seals are kept");
        let is_taken = self.record(
            &Record {
                time_ns: now_ns(),
                class: Class::Administrative,
                operation: Act::Pruned as u16,
                detail: detail.as_bytes(),
                ..Record::default()
            },
            self.keeping.policy == Policy::Block,
        );
        if !is_taken {
            return false;
        }
        let (told, kept) = mpsc::channel();
        self.sync_asked.store(true, Ordering::SeqCst);
        self.queue.lock().after.push(Box::new(move || {
            // Nobody waits any more where it took too long.
            let _ = told.send(());
        }));
        self.wake();
        kept.recv_timeout(REMOVAL_PATIENCE).is_ok()
    }
}

/// Builds a closed segment's index, so that nobody who searches has to.
fn index(segment: &SegmentFile) {
    if let Err(error) = build_index(segment) {
        tracing::warn!(%error, segment = segment.number, "a closed segment of the audit trail has no index; it is searched from end to end");
    }
}

/// How nice the thread is that indexes and compresses: on a machine that is fully used it has about a tenth of a core, which is enough for 50,000 records a second.
const HOUSE_NICE: i32 = 10;
/// How long it is waited for the record of a removal; without it, nothing is removed this time.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether segments are too old.
const HOUSE_STEP: Duration = Duration::from_secs(60);
/// How long the end of a trail waits for segments that are being removed.
const TIDYING_MAX: Duration = Duration::from_secs(5);
