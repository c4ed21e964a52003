//! What is done with closed segments behind the writer: indexed, compressed, and removed when they
//! are too old.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::super::compress::compress_while;
use super::super::index::{build_index_while, is_indexed};
use super::super::prune::{PRUNED, prune};
use super::super::{Disk, SegmentFile, segments};
use super::Shared;
use super::write_loop::{Writer, now_ns};
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
    /// From now on none are removed. What is being removed is waited for, but not for long where
    /// the disk takes no record of it.
    pub(super) fn end_tidying(&self) {
        if let Some(mut turn) = self.tidying.try_lock_for(TIDYING_MAX) {
            *turn = Tidying::Ended;
        }
    }

    /// Builds indexes that a crash, or somebody, has taken away. The last segment is being written.
    fn index_left(&self, directory: &Path) {
        let files = segments(directory).unwrap_or_default();
        for file in files.iter().rev().skip(1) {
            if !self.goes_on() {
                return;
            }
            // One that can't be read is for `verify` to complain of; one that isn't compressed comes by itself.
            if file.packed && matches!(is_indexed(file), Ok(false)) {
                self.index(file);
            }
        }
    }

    /// Indexes and compresses what was closed, when nothing else wants the CPU, and removes what is
    /// too old.
    pub(super) fn keep_house(&self, disk: &dyn Disk, directory: &Path, backlog: &Backlog) {
        // Records of operations come first: what these threads do can wait. Where one may not be lowered,
        // it goes on as it is.
        let _ = rustix::process::setpriority_process(None, IDLE_NICE);
        self.index_left(directory);
        while let Some(segment) = backlog.wait(0) {
            if let Some(segment) = segment {
                self.put_away(disk, &segment);
                backlog.done(&segment);
            }
            self.tidy(disk, directory, backlog);
        }
    }

    /// Helps with that where more waits than may, and looks after what is too old where there is no
    /// idle time to do it in.
    pub(super) fn catch_up(&self, disk: &dyn Disk, directory: &Path, backlog: &Backlog) {
        let _ = rustix::process::setpriority_process(None, HOUSE_NICE);
        while let Some(segment) = backlog.wait(BACKLOG_MAX) {
            if let Some(segment) = segment {
                self.put_away(disk, &segment);
                backlog.done(&segment);
            }
            self.tidy(disk, directory, backlog);
        }
    }

    /// What is not done when the trail ends is given up: the next start does it.
    fn put_away(&self, disk: &dyn Disk, segment: &SegmentFile) {
        self.index(segment);
        if self.keeping.compress
            && let Err(error) = compress_while(disk, segment, &|| self.goes_on())
            && self.goes_on()
        {
            tracing::warn!(%error, segment = segment.number, "a closed segment of the audit trail stays uncompressed");
        }
    }

    /// Builds a closed segment's index, so that nobody who searches has to.
    fn index(&self, segment: &SegmentFile) {
        if let Err(error) = build_index_while(segment, &|| self.goes_on())
            && self.goes_on()
        {
            tracing::warn!(%error, segment = segment.number, "a closed segment of the audit trail has no index; it is searched from end to end");
        }
    }

    fn goes_on(&self) -> bool {
        !self.stopped.load(Ordering::Acquire)
    }

    /// Once the trail ends nobody writes what would be said of it: the next start removes it. While
    /// another is at it there is nothing left to do.
    fn tidy(&self, disk: &dyn Disk, directory: &Path, backlog: &Backlog) {
        let Some(turn) = self.tidying.try_lock() else { return };
        if *turn == Tidying::Ended {
            return;
        }
        // One that is being compressed is not removed under way: it would come back.
        let may_go = |number| self.goes_on() && !backlog.is_in_work(number);
        if let Err(error) = prune(disk, directory, &self.keeping.retention, now_ns(), may_go, |last| self.tell_removal(last)) {
            tracing::warn!(%error, "old segments of the audit trail can't be removed");
        }
    }
}

/// Closed segments that are neither indexed nor compressed yet.
#[derive(Default)]
pub(super) struct Backlog {
    inside: Mutex<Waiting>,
    news: Condvar,
}

#[derive(Default)]
struct Waiting {
    segments: VecDeque<SegmentFile>,
    in_work: Vec<u64>,
    has_ended: bool,
}

impl Backlog {
    /// The oldest, once more than so many wait. Some(None) when it is time to look after old ones.
    /// None at the end, which is not to be waited for: the next start takes up what is left.
    fn wait(&self, more_than: usize) -> Option<Option<SegmentFile>> {
        let mut inside = self.inside.lock();
        let until = Instant::now() + HOUSE_STEP;
        loop {
            if inside.has_ended {
                return None;
            }
            if inside.segments.len() > more_than
                && let Some(segment) = inside.segments.pop_front()
            {
                inside.in_work.push(segment.number);
                return Some(Some(segment));
            }
            if self.news.wait_until(&mut inside, until).timed_out() {
                return Some(None);
            }
        }
    }

    fn done(&self, segment: &SegmentFile) {
        self.inside.lock().in_work.retain(|number| *number != segment.number);
    }

    /// Whether any up to this one is, or waits to be.
    fn is_in_work(&self, last: u64) -> bool {
        let inside = self.inside.lock();
        inside.segments.iter().map(|segment| &segment.number).chain(&inside.in_work).any(|number| *number <= last)
    }
}

/// The writer's end: when it is dropped no more come.
pub(super) struct Closed(pub(super) Arc<Backlog>);

impl Closed {
    pub(super) fn add(&self, segment: SegmentFile) {
        self.0.inside.lock().segments.push_back(segment);
        self.0.news.notify_all();
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.inside.lock().has_ended = true;
        self.0.news.notify_all();
    }
}

/// That segments up to this one are to be removed, and who waits until that is on record.
pub(super) struct Removal {
    last: u64,
    told: mpsc::Sender<()>,
}

impl Shared {
    /// Records that segments up to this one are removed, and waits until that is durable: what is
    /// missing without it is a fault. Whether it is.
    pub(super) fn tell_removal(&self, last: u64) -> bool {
        let (told, kept) = mpsc::channel();
        {
            let mut queue = self.queue.lock();
            if queue.has_ended {
                return false;
            }
            queue.removal = Some(Removal { last, told });
        }
        self.wake();
        kept.recv_timeout(REMOVAL_PATIENCE).is_ok()
    }
}

impl Writer {
    /// Appends the record of a removal, which is never one of those that are lost. One at a time:
    /// whoever waited for the one before has given up.
    pub(super) fn append_removal(&mut self, removal: Option<Removal>) {
        let Some(Removal { last, told }) = removal.filter(|_| self.removal.is_none()) else { return };
        let detail = format!("{PRUNED}{last}; their seals are kept");
        self.log.append_record(&Record {
            time_ns: now_ns(),
            class: Class::Administrative,
            operation: Act::Pruned as u16,
            detail: detail.as_bytes(),
            ..Record::default()
        });
        self.unsynced += 1;
        self.shared.written.fetch_add(1, Ordering::Relaxed);
        self.removal = Some(told);
    }
}

/// How nice the thread is that indexes and compresses: it takes what others leave of a machine, and
/// hardly more. A burst costs whoever waits for answers nothing of it.
const IDLE_NICE: i32 = 19;
/// How nice the one is that helps: on a machine that is fully used it has about a tenth of a core,
/// which is enough for 50,000 records a second.
const HOUSE_NICE: i32 = 10;
/// Closed segments that may wait for idle time: of 64 MiB each, seven million records. They are
/// searched from end to end meanwhile.
const BACKLOG_MAX: usize = 16;
/// How long it is waited for the record of a removal; without it, nothing is removed this time.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether segments are too old.
const HOUSE_STEP: Duration = Duration::from_secs(60);
/// How long the end of a trail waits for segments that are being removed.
const TIDYING_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
impl super::Trail {
    /// As who removes segments does.
    pub(in crate::trail) fn tell_removal(&self, last: u64) -> bool {
        self.shared.tell_removal(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64) -> SegmentFile {
        SegmentFile { number, path: format!("{number:012}.trail").into(), packed: false }
    }

    #[test]
    fn who_helps_gets_none_until_more_wait_than_may_and_nobody_any_at_the_end() {
        let backlog = Arc::new(Backlog::default());
        let closed = Closed(backlog.clone());
        (1..=3).for_each(|number| closed.add(segment(number)));
        let next = |more_than| backlog.wait(more_than).flatten().map(|segment| segment.number);
        assert_eq!(next(2), Some(1), "three wait, and two may");
        assert_eq!(next(0), Some(2));
        let helper = backlog.clone();
        let waiting = std::thread::spawn(move || helper.wait(2).flatten().map(|segment| segment.number));
        (4..=5).for_each(|number| closed.add(segment(number)));
        assert_eq!(waiting.join().expect("it does not fail"), Some(3), "three wait again");
        drop(closed);
        assert_eq!([next(2), next(0)], [None, None], "the next start takes up the two that are left");
    }

    #[test]
    fn one_that_is_put_away_is_not_removed_under_way() {
        let backlog = Arc::new(Backlog::default());
        let closed = Closed(backlog.clone());
        closed.add(segment(7));
        assert!([7, 8].iter().all(|last| backlog.is_in_work(*last)) && !backlog.is_in_work(6));
        let segment = backlog.wait(0).flatten().expect("one waits");
        assert!(backlog.is_in_work(7), "it is in work");
        backlog.done(&segment);
        assert!(!backlog.is_in_work(7));
    }
}
