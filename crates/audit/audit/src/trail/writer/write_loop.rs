//! Thread that moves records from the rings to the log, and syncs and seals the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::maintenance::BacklogHandle;
use super::ring::{self, Gap};
use super::yield_policy::YieldPolicy;
use super::{Callback, Durability, Policy, Shared};
use crate::Record;
use crate::record::Class;
use crate::trail::{Log, LogError, LostCount};

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) log: Log,
    pub(super) backlog_handle: BacklogHandle,
    pub(super) halt: Option<Box<dyn Fn() + Send>>,
    pub(super) unsynced: u64,
    pub(super) synced_at: Instant,
    pub(super) unconfirmed_count: u64,
    pub(super) written_ns: u64,
    pub(super) gaps: Vec<(u64, u64)>,
    pub(super) unreported_gap: Gap,
    /// The stored loss includes unnumbered records.
    pub(super) is_loss_stored: bool,
    pub(super) has_failed: bool,
    pub(super) removal: Option<mpsc::Sender<()>>,
}

impl Writer {
    pub(super) fn run(self) {
        let shared = self.shared.clone();
        self.write_until_stopped();
        let mut queue = shared.queue.lock();
        (queue.removal, queue.has_ended) = (None, true);
    }

    fn write_until_stopped(mut self) {
        let mut batch = ring::Batch::default();
        let mut callbacks: Vec<Callback> = Vec::new();
        loop {
            let is_stopped = self.shared.is_stopped.load(Ordering::SeqCst);
            // Taken before the rings, so that all records queued before a callback are included.
            let removal = {
                let mut queue = self.shared.queue.lock();
                callbacks.append(&mut queue.callbacks);
                queue.removal.take()
            };
            let moved = self.move_records(&mut batch);
            self.append_removal(removal);
            let written = self.write(!callbacks.is_empty(), is_stopped);
            self.has_failed = written.is_err();
            match written {
                Ok(_) if moved.is_none() => {}
                Ok(is_stored) => {
                    self.shared.is_healthy.store(true, Ordering::Release);
                    self.written_ns = now_ns();
                    if is_stored {
                        self.gaps.clear();
                    }
                    if is_stored && self.unconfirmed_count > 0 {
                        self.shared.unstored_count.fetch_sub(
                            std::mem::take(&mut self.unconfirmed_count),
                            Ordering::SeqCst,
                        );
                    }
                    callbacks.drain(..).for_each(|callback| callback());
                    if is_stopped && self.unreported_gap.count == 0 {
                        break;
                    }
                    if self.unreported_gap.count == 0 {
                        self.pause(moved.unwrap_or(0));
                    }
                }
                Err(error) => {
                    let is_logged = self.handle_failure(&error);
                    if is_stopped {
                        tracing::error!(%error, "could not write the end of the audit trail");
                        self.store_lost_count(self.count_remaining(&mut batch), true);
                        return;
                    }
                    self.store_lost_count(0, is_logged);
                    let mut queue = self.shared.queue.lock();
                    self.shared.wakeup.wait_for(&mut queue, RETRY);
                }
            }
        }
        if let Err(error) = self.log.close(now_ns()) {
            tracing::error!(%error, "could not seal the end of the audit trail");
        }
    }

    /// `None` if none may be lost. On a failing disk, excess records are lost.
    fn move_records(&mut self, batch: &mut ring::Batch) -> Option<u64> {
        let is_full = self.log.pending_len() > PENDING_LEN_MAX;
        if is_full && self.shared.options.delays_replies() {
            return None;
        }
        for ring in &self.shared.rings {
            batch.take(ring);
        }
        self.shared.is_writer_late.store(self.has_failed, Ordering::Release);
        drop(self.shared.room_lock.lock());
        self.shared.room_freed.notify_all();
        let mut gap = batch.take_lost();
        let mut moved = 0;
        // The deadline starts now, because some records waited for their change to become durable.
        let now = now_ns();
        let mut yield_policy =
            YieldPolicy::new(self.shared.options.delays_replies(), Instant::now());
        let mut appender = self.log.append_batch();
        batch.drain(|time, body| {
            if is_full {
                gap = gap.with_lost(1, time);
            } else {
                appender.append(body, now);
                moved += 1;
                if yield_policy.should_yield(Instant::now) {
                    thread::yield_now();
                }
            }
        });
        drop(appender);
        self.shared.written.fetch_add(moved, Ordering::Relaxed);
        self.unsynced += moved;
        if self.shared.options.delays_replies() {
            self.unconfirmed_count += moved;
        }
        self.unreported_gap = self.unreported_gap.with_lost(gap.count, gap.since_ns);
        self.shared.lost.fetch_add(gap.count, Ordering::Relaxed);
        if gap.count > 0 {
            self.halt("audit records were lost");
        }
        // One gap record covers all losses until the disk recovers.
        if !is_full && !self.has_failed && self.unreported_gap.count > 0 {
            let (gap, now) = (std::mem::take(&mut self.unreported_gap), now_ns());
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
        // The stored loss already includes the gap record.
        if self.is_loss_stored && self.unreported_gap.count == 0 {
            self.is_loss_stored = !self.store_lost_count(0, false);
        }
        Some(moved)
    }

    /// True if all accepted records are stored as the policy requires.
    fn write(&mut self, has_waiting_replies: bool, is_stopped: bool) -> Result<bool, LogError> {
        let since = self.synced_at.elapsed();
        let must_sync = match self.shared.options.durability {
            Durability::System => false,
            Durability::Each => self.unsynced > 0,
            Durability::Records(count) => self.unsynced >= count || has_waiting_replies,
            Durability::Every(time) => self.unsynced > 0 && (since >= time || has_waiting_replies),
        };
        let must_sync = must_sync || self.removal.is_some();
        if must_sync
            || (is_stopped && self.unsynced > 0)
            || self.log.unsynced_len() > UNSYNCED_LEN_MAX
        {
            self.log.sync()?;
            (self.unsynced, self.synced_at) = (0, Instant::now());
            self.removal.take().into_iter().for_each(|waiter| _ = waiter.send(()));
        } else {
            self.log.write()?;
        }
        self.log.maintain(now_ns())?;
        for segment in self.log.take_closed() {
            self.backlog_handle.add(segment);
        }
        Ok(self.unsynced == 0 || self.shared.options.durability == Durability::System)
    }

    fn count_remaining(&self, batch: &mut ring::Batch) -> u64 {
        self.shared.rings.iter().for_each(|ring| batch.take(ring));
        let mut count = batch.take_lost().count;
        batch.drain(|_, _| count += 1);
        count
    }

    fn store_lost_count(&mut self, more: u64, is_logged: bool) -> bool {
        let more = more + self.unreported_gap.count;
        let lost = LostCount {
            next_seq: self.log.next_seq(),
            unnumbered: more,
            since_ns: self.written_ns,
            gaps: self.gaps.clone(),
            report_seq: 0,
        };
        self.is_loss_stored |= more > 0;
        let stored = self.log.store_lost_count(&lost);
        let is_stored = stored.is_ok();
        if let Some(error) = stored.err().filter(|_| is_logged) {
            tracing::error!(%error, "could not store the number of lost audit records for the next start");
        }
        is_stored
    }

    /// Log lines come at exponentially growing intervals. Returns true after a line.
    fn handle_failure(&mut self, error: &LogError) -> bool {
        self.shared.is_healthy.store(false, Ordering::Release);
        self.shared.is_writer_late.store(true, Ordering::Release);
        let failures = self.shared.failures.fetch_add(1, Ordering::Relaxed);
        let is_logged = failures.is_power_of_two() || failures == 0;
        if is_logged {
            tracing::error!(%error, policy = ?self.shared.options.policy, "could not write audit records; retrying");
        }
        self.halt("audit records cannot be written");
        is_logged
    }

    fn halt(&mut self, reason: &str) {
        if self.shared.options.policy == Policy::Halt
            && let Some(halt) = self.halt.take()
        {
            tracing::error!("{reason}: the service stops, because the audit policy is halt");
            halt();
        }
    }

    /// Long when idle, short under load to form large groups.
    fn pause(&mut self, moved: u64) {
        let shared = self.shared.clone();
        let mut queue = shared.queue.lock();
        if !queue.callbacks.is_empty()
            || queue.removal.is_some()
            || shared.is_stopped.load(Ordering::SeqCst)
        {
            return;
        }
        if moved > 0 {
            // If replies wait, a new record wakes the writer at once.
            shared.is_sleeping.store(shared.options.delays_replies(), Ordering::SeqCst);
            shared.wakeup.wait_for(&mut queue, GROUP_STEP);
            shared.is_sleeping.store(false, Ordering::SeqCst);
            return;
        }
        shared.is_sleeping.store(true, Ordering::SeqCst);
        if shared.rings.iter().any(|ring| ring.len() > 0) {
            shared.is_sleeping.store(false, Ordering::SeqCst);
            return;
        }
        shared.wakeup.wait_for(&mut queue, IDLE_STEP);
        shared.is_sleeping.store(false, Ordering::SeqCst);
    }
}

pub(super) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

const PENDING_LEN_MAX: usize = 64 << 20;
const UNSYNCED_LEN_MAX: usize = 32 << 20;
const RETRY: Duration = Duration::from_millis(500);
const GROUP_STEP: Duration = Duration::from_millis(1);
const IDLE_STEP: Duration = Duration::from_millis(500);
