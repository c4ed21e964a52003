//! Background indexing, compression and retention of closed segments.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::super::compress::compress;
use super::super::index::{build_index_while, is_indexed};
use super::super::prune::{PRUNED_PREFIX, prune};
use super::super::{Disk, SegmentFile, segments};
use super::Shared;
use super::write_loop::{Writer, now_ns};
use crate::Record;
use crate::record::{Act, Class};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RetentionState {
    #[default]
    Active,
    Ended,
}

impl Shared {
    /// A removal may hang on a failing disk.
    pub(super) fn end_retention(&self) {
        if let Some(mut guard) = self.retention_state.try_lock_for(RETENTION_STOP_TIMEOUT) {
            *guard = RetentionState::Ended;
        }
    }

    fn build_missing_indexes(&self, directory: &Path) {
        let files = segments(directory).unwrap_or_default();
        for file in files.iter().rev().skip(1) {
            if !self.is_running() {
                return;
            }
            if file.is_compressed && matches!(is_indexed(file), Ok(false)) {
                self.index(file);
            }
        }
    }

    /// Runs at idle priority.
    pub(super) fn run_maintenance(&self, disk: &dyn Disk, directory: &Path, backlog: &Backlog) {
        // Recording has priority. Failure to lower the priority is harmless.
        let _ = rustix::process::setpriority_process(None, IDLE_NICE);
        self.build_missing_indexes(directory);
        while let Some(segment) = backlog.wait(0) {
            if let Some(segment) = segment {
                self.index_and_compress(disk, &segment);
                backlog.finish(&segment);
            }
            self.apply_retention(disk, directory, backlog);
        }
    }

    pub(super) fn help_with_backlog(&self, disk: &dyn Disk, directory: &Path, backlog: &Backlog) {
        let _ = rustix::process::setpriority_process(None, HELPER_NICE);
        while let Some(segment) = backlog.wait(BACKLOG_MAX) {
            if let Some(segment) = segment {
                self.index_and_compress(disk, &segment);
                backlog.finish(&segment);
            }
            self.apply_retention(disk, directory, backlog);
        }
    }

    fn index_and_compress(&self, disk: &dyn Disk, segment: &SegmentFile) {
        self.index(segment);
        if self.options.compress
            && let Err(error) = compress(disk, segment, &|| self.is_running())
            && self.is_running()
        {
            tracing::warn!(%error, segment = segment.number, "could not compress a closed segment of the audit trail");
        }
    }

    fn index(&self, segment: &SegmentFile) {
        if let Err(error) = build_index_while(segment, &|| self.is_running())
            && self.is_running()
        {
            tracing::warn!(%error, segment = segment.number, "could not index a closed segment of the audit trail; searches scan it");
        }
    }

    fn is_running(&self) -> bool {
        !self.is_stopped.load(Ordering::Acquire)
    }

    fn apply_retention(&self, disk: &dyn Disk, directory: &Path, backlog: &Backlog) {
        let Some(guard) = self.retention_state.try_lock() else { return };
        if *guard == RetentionState::Ended {
            return;
        }
        // A segment in compression would reappear after its removal.
        let may_remove = |number| self.is_running() && !backlog.contains_up_to(number);
        if let Err(error) =
            prune(disk, directory, &self.options.retention, now_ns(), may_remove, |last| {
                self.record_removal(last)
            })
        {
            tracing::warn!(%error, "could not remove old segments of the audit trail");
        }
    }
}

#[derive(Default)]
pub(super) struct Backlog {
    state: Mutex<BacklogState>,
    wakeup: Condvar,
}

#[derive(Default)]
struct BacklogState {
    segments: VecDeque<SegmentFile>,
    in_progress: Vec<u64>,
    has_ended: bool,
}

impl Backlog {
    /// `Some(None)` when retention is due, `None` at the end.
    fn wait(&self, waiting_max: usize) -> Option<Option<SegmentFile>> {
        let mut state = self.state.lock();
        let until = Instant::now() + RETENTION_STEP;
        loop {
            if state.has_ended {
                return None;
            }
            if state.segments.len() > waiting_max
                && let Some(segment) = state.segments.pop_front()
            {
                state.in_progress.push(segment.number);
                return Some(Some(segment));
            }
            if self.wakeup.wait_until(&mut state, until).timed_out() {
                return Some(None);
            }
        }
    }

    fn finish(&self, segment: &SegmentFile) {
        self.state.lock().in_progress.retain(|number| *number != segment.number);
    }

    fn contains_up_to(&self, last: u64) -> bool {
        let state = self.state.lock();
        state
            .segments
            .iter()
            .map(|segment| &segment.number)
            .chain(&state.in_progress)
            .any(|number| *number <= last)
    }
}

pub(super) struct BacklogHandle(pub(super) Arc<Backlog>);

impl BacklogHandle {
    pub(super) fn add(&self, segment: SegmentFile) {
        self.0.state.lock().segments.push_back(segment);
        self.0.wakeup.notify_all();
    }
}

impl Drop for BacklogHandle {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.wakeup.notify_all();
    }
}

pub(super) struct RemovalRequest {
    last: u64,
    waiter: mpsc::Sender<()>,
}

impl Shared {
    /// True if the record became durable in time.
    pub(super) fn record_removal(&self, last: u64) -> bool {
        let (waiter, stored) = mpsc::channel();
        {
            let mut queue = self.queue.lock();
            if queue.has_ended {
                return false;
            }
            queue.removal = Some(RemovalRequest { last, waiter });
        }
        self.wake();
        stored.recv_timeout(REMOVAL_TIMEOUT).is_ok()
    }
}

impl Writer {
    /// Never drops the record. The sender of an earlier request has timed out.
    pub(super) fn append_removal(&mut self, removal: Option<RemovalRequest>) {
        let Some(RemovalRequest { last, waiter }) = removal.filter(|_| self.removal.is_none())
        else {
            return;
        };
        let detail = format!("{PRUNED_PREFIX}{last}; their seals are kept");
        self.log.append_record(&Record {
            time_ns: now_ns(),
            class: Class::Administrative,
            operation: Act::Pruned as u16,
            detail: detail.as_bytes(),
            ..Record::default()
        });
        self.unsynced += 1;
        self.shared.written.fetch_add(1, Ordering::Relaxed);
        self.removal = Some(waiter);
    }
}

const IDLE_NICE: i32 = 19;
/// A tenth of a busy core: 50,000 records per second.
const HELPER_NICE: i32 = 10;
/// Seven million records at 64 MiB a segment, which searches scan until then.
const BACKLOG_MAX: usize = 16;
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
const RETENTION_STEP: Duration = Duration::from_secs(60);
const RETENTION_STOP_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
impl super::Trail {
    pub(in crate::trail) fn record_removal(&self, last: u64) -> bool {
        self.shared.record_removal(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64) -> SegmentFile {
        SegmentFile { number, path: format!("{number:012}.trail").into(), is_compressed: false }
    }

    #[test]
    fn helper_takes_segments_only_above_limit() {
        let backlog = Arc::new(Backlog::default());
        let closed = BacklogHandle(backlog.clone());
        (1..=3).for_each(|number| closed.add(segment(number)));
        let next = |waiting_max| backlog.wait(waiting_max).flatten().map(|segment| segment.number);
        assert_eq!(next(2), Some(1), "three segments wait, and the limit is two");
        assert_eq!(next(0), Some(2));
        let helper = backlog.clone();
        let waiting =
            std::thread::spawn(move || helper.wait(2).flatten().map(|segment| segment.number));
        (4..=5).for_each(|number| closed.add(segment(number)));
        assert_eq!(waiting.join().expect("the thread ends"), Some(3), "three segments wait again");
        drop(closed);
        assert_eq!([next(2), next(0)], [None, None], "the next start takes the other two");
    }

    #[test]
    fn segment_in_progress_is_not_removed() {
        let backlog = Arc::new(Backlog::default());
        let closed = BacklogHandle(backlog.clone());
        closed.add(segment(7));
        assert!(
            [7, 8].iter().all(|last| backlog.contains_up_to(*last)) && !backlog.contains_up_to(6)
        );
        let segment = backlog.wait(0).flatten().expect("a segment waits");
        assert!(backlog.contains_up_to(7), "still in progress");
        backlog.finish(&segment);
        assert!(!backlog.contains_up_to(7));
    }
}
