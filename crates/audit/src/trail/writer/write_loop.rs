//! The thread that moves records from the rings to the log, syncs them and seals them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::maintenance::Closed;
use super::ring::{self, Gap};
use super::yield_policy::Courtesy;
use super::{After, Durable, Policy, Shared};
use crate::Record;
use crate::record::Class;
use crate::trail::{Log, LogError, Lost};

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) log: Log,
    pub(super) closed: Closed,
    pub(super) halt: Option<Box<dyn Fn() + Send>>,
    pub(super) unsynced: u64,
    pub(super) synced_at: Instant,
    /// Records that were taken from the rings and still count as `behind`.
    pub(super) unkept: u64,
    /// Time of the last successful write.
    pub(super) written_ns: u64,
    /// Gap records that are not known to be on the disk: their sequence numbers, and the number of
    /// records each stands for.
    pub(super) gaps: Vec<(u64, u64)>,
    /// Lost records without a gap record, because the disk fails.
    pub(super) held: Gap,
    /// Whether the stored count for the next start includes records without a sequence number.
    pub(super) is_counted: bool,
    pub(super) refuses: bool,
    /// Notified once the record of a removal is durable.
    pub(super) removal: Option<mpsc::Sender<()>>,
}

impl Writer {
    pub(super) fn run(self) {
        let shared = self.shared.clone();
        self.work();
        let mut queue = shared.queue.lock();
        (queue.removal, queue.has_ended) = (None, true);
    }

    fn work(mut self) {
        let mut batch = ring::Batch::default();
        let mut kept: Vec<After> = Vec::new();
        loop {
            let stopped = self.shared.stopped.load(Ordering::SeqCst);
            // Taken before the rings, so that all records queued before a callback are included.
            let removal = {
                let mut queue = self.shared.queue.lock();
                kept.append(&mut queue.after);
                queue.removal.take()
            };
            let taken = self.take(&mut batch);
            self.append_removal(removal);
            let written = self.write(!kept.is_empty(), stopped);
            self.refuses = written.is_err();
            match written {
                // Nothing was taken, so the rings still hold records. Retry now that there is room.
                Ok(_) if taken.is_none() => {}
                Ok(is_kept) => {
                    self.shared.healthy.store(true, Ordering::Release);
                    self.written_ns = now_ns();
                    if is_kept {
                        self.gaps.clear();
                    }
                    if is_kept && self.unkept > 0 {
                        self.shared.behind.fetch_sub(std::mem::take(&mut self.unkept), Ordering::SeqCst);
                    }
                    kept.drain(..).for_each(|after| after());
                    if stopped && self.held.count == 0 {
                        break;
                    }
                    if self.held.count == 0 {
                        self.pause(taken.unwrap_or(0));
                    }
                }
                Err(error) => {
                    let is_said = self.refused(&error);
                    if stopped {
                        tracing::error!(%error, "the end of the audit trail could not be written");
                        self.keep_lost(self.left(&mut batch), true);
                        return;
                    }
                    // Stored here too, in case the process is killed while it waits.
                    self.keep_lost(0, is_said);
                    let mut queue = self.shared.queue.lock();
                    self.shared.news.wait_for(&mut queue, RETRY);
                }
            }
        }
        if let Err(error) = self.log.close(now_ns()) {
            tracing::error!(%error, "the audit trail has no seal at its end");
        }
    }

    /// Moves all records from the rings to the log and returns their number. While the disk fails,
    /// memory is bounded: records beyond are lost, or `None` is returned if none may be lost.
    fn take(&mut self, batch: &mut ring::Batch) -> Option<u64> {
        let is_full = self.log.pending_len() > PENDING_LEN_MAX;
        if is_full && self.shared.keeping.holds() {
            return None;
        }
        for ring in &self.shared.rings {
            batch.take(ring);
        }
        self.shared.room.notify_all();
        let mut gap = batch.take_lost();
        let mut taken = 0;
        // The seal deadline starts now, not at the record's time, because some records wait for
        // their change to become durable.
        let now = now_ns();
        let mut courtesy = Courtesy::new(self.shared.keeping.holds(), Instant::now());
        let mut appending = self.log.appending();
        batch.drain(|time, body| {
            if is_full {
                gap = gap.and_more(1, time);
            } else {
                appending.append(body, now);
                taken += 1;
                if courtesy.is_due(Instant::now) {
                    thread::yield_now();
                }
            }
        });
        drop(appending);
        self.shared.written.fetch_add(taken, Ordering::Relaxed);
        self.unsynced += taken;
        if self.shared.keeping.holds() {
            self.unkept += taken;
        }
        self.held = self.held.and_more(gap.count, gap.since_ns);
        self.shared.lost.fetch_add(gap.count, Ordering::Relaxed);
        if gap.count > 0 {
            self.halt("audit records were lost");
        }
        // A single gap record covers all losses until the disk recovers, so that gap records do not
        // accumulate.
        if !is_full && !self.refuses && self.held.count > 0 {
            let (gap, now) = (std::mem::take(&mut self.held), now_ns());
            let seq = self.log.append_record(&Record {
                time_ns: now,
                class: Class::Gap,
                gap: Some(gap.count),
                open_ns: Some(now.saturating_sub(gap.since_ns)),
                ..Record::default()
            });
            self.gaps.push((seq, gap.count));
            self.unsynced += 1;
        }
        // Updated before the gap record can reach the disk, because the stored count already
        // includes it. A failure is retried.
        if self.is_counted && self.held.count == 0 {
            self.is_counted = !self.keep_lost(0, false);
        }
        Some(taken)
    }

    /// Writes or syncs as the policy requires. Returns whether all accepted records are stored.
    fn write(&mut self, awaited: bool, stopped: bool) -> Result<bool, LogError> {
        let since = self.synced_at.elapsed();
        let durable = match self.shared.keeping.durable {
            Durable::System => false,
            Durable::Each => self.unsynced > 0,
            Durable::Records(count) => self.unsynced >= count || awaited,
            Durable::Every(time) => self.unsynced > 0 && (since >= time || awaited),
        };
        let durable = durable || self.removal.is_some();
        if durable || (stopped && self.unsynced > 0) || self.log.unsynced_len() > UNSYNCED_LEN_MAX {
            self.log.sync()?;
            (self.unsynced, self.synced_at) = (0, Instant::now());
            // The receiver may have timed out.
            self.removal.take().into_iter().for_each(|told| _ = told.send(()));
        } else {
            self.log.write()?;
        }
        self.log.maintain(now_ns())?;
        for segment in self.log.take_closed() {
            self.closed.add(segment);
        }
        Ok(self.unsynced == 0 || self.shared.keeping.durable == Durable::System)
    }

    /// Counts the records in the rings, including lost ones.
    fn left(&self, batch: &mut ring::Batch) -> u64 {
        self.shared.rings.iter().for_each(|ring| batch.take(ring));
        let mut left = batch.take_lost().count;
        batch.drain(|_, _| left += 1);
        left
    }

    /// Stores the number of unwritten records for the next start. Returns whether that succeeded. A
    /// failure is logged only if `is_said`.
    fn keep_lost(&mut self, more: u64, is_said: bool) -> bool {
        let more = more + self.held.count;
        let lost = Lost { next_seq: self.log.next_seq(), more, since_ns: self.written_ns, gaps: self.gaps.clone(), told: 0 };
        self.is_counted |= more > 0;
        let kept = self.log.keep_lost(&lost);
        let is_kept = kept.is_ok();
        if let Some(error) = kept.err().filter(|_| is_said) {
            tracing::error!(%error, "what the disk has not taken of the audit trail could not be counted for the next start");
        }
        is_kept
    }

    /// Handles a failed write. Logs at exponentially growing intervals, and returns whether it
    /// logged.
    fn refused(&mut self, error: &LogError) -> bool {
        self.shared.healthy.store(false, Ordering::Release);
        let failures = self.shared.failures.fetch_add(1, Ordering::Relaxed);
        let is_said = failures.is_power_of_two() || failures == 0;
        if is_said {
            tracing::error!(%error, policy = ?self.shared.keeping.policy, "audit records can't be written; it is tried again");
        }
        self.halt("audit records can't be written");
        is_said
    }

    fn halt(&mut self, why: &str) {
        if self.shared.keeping.policy == Policy::Halt
            && let Some(halt) = self.halt.take()
        {
            tracing::error!("{why}: the service stops, as the policy is to halt");
            halt();
        }
    }

    /// Waits for more records: long when idle, briefly under load, so that groups are large.
    fn pause(&mut self, taken: u64) {
        let shared = self.shared.clone();
        let mut queue = shared.queue.lock();
        if !queue.after.is_empty() || queue.removal.is_some() || shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        if taken > 0 {
            // With waiting replies, a new record wakes the writer at once.
            shared.sleeping.store(shared.keeping.holds(), Ordering::SeqCst);
            shared.news.wait_for(&mut queue, GROUP_STEP);
            shared.sleeping.store(false, Ordering::SeqCst);
            return;
        }
        shared.sleeping.store(true, Ordering::SeqCst);
        if shared.rings.iter().any(|ring| ring.len() > 0) {
            shared.sleeping.store(false, Ordering::SeqCst);
            return;
        }
        shared.news.wait_for(&mut queue, IDLE_STEP);
        shared.sleeping.store(false, Ordering::SeqCst);
    }
}

pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Limit on unwritten bytes. Beyond it, records are lost or stay in the rings.
const PENDING_LEN_MAX: usize = 64 << 20;
/// Limit on unsynced bytes. Beyond it, they are synced early.
const UNSYNCED_LEN_MAX: usize = 32 << 20;
/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Collection time for a group of records under load.
const GROUP_STEP: Duration = Duration::from_millis(1);
/// Wake-up interval for seals and rotation when idle.
const IDLE_STEP: Duration = Duration::from_millis(500);
