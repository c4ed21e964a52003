//! Worker threads put records into bounded rings, and one thread writes them. A worker waits for
//! room in a full ring, at most a second unless the policy is [`Policy::Block`].
//! [`Trail::call_when_stored`] delays a reply until its record is stored.

mod maintenance;
mod options;
mod ring;
mod write_loop;
mod yield_policy;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Disk, Log};
use crate::Record;
use maintenance::{Backlog, BacklogHandle, RemovalRequest, RetentionState};
pub use options::{Durability, Policy, WriterOptions};
use ring::{Gap, Ring};
use write_loop::{Writer, now_ns};

/// Runs once all earlier records are stored.
pub type Callback = Box<dyn FnOnce() + Send>;

/// Writes a trail for many threads, by a thread of its own.
pub struct Trail {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// For metrics, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records on disk.
    pub written: u64,
    /// Records lost for lack of room.
    pub lost: u64,
    /// Failed writes.
    pub failures: u64,
    /// Bytes in rings.
    pub waiting_len: u64,
    /// As [`Trail::is_healthy`].
    pub is_healthy: bool,
}

struct Shared {
    rings: Vec<Ring>,
    options: WriterOptions,
    queue: Mutex<Queue>,
    wakeup: Condvar,
    room_freed: Condvar,
    room_lock: Mutex<()>,
    is_sleeping: AtomicBool,
    /// The disk fails, or a record waited in vain since the writer last emptied the rings.
    is_writer_late: AtomicBool,
    retention_state: Mutex<RetentionState>,
    is_healthy: AtomicBool,
    is_stopped: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
    failures: AtomicU64,
    unstored_count: AtomicU64,
}

#[derive(Default)]
struct Queue {
    callbacks: Vec<Callback>,
    removal: Option<RemovalRequest>,
    has_ended: bool,
}

impl Trail {
    /// Starts the writer and two maintenance threads. Calls `halt` at most once, under
    /// [`Policy::Halt`].
    pub fn start(
        log: Log,
        disk: Arc<dyn Disk>,
        options: WriterOptions,
        halt: impl Fn() + Send + 'static,
    ) -> io::Result<Trail> {
        let has_failed = log.recovery_error().is_some();
        let recovery_gap = log.unwritten_gap();
        let shared = Arc::new(Shared {
            rings: (0..RING_COUNT).map(|_| Ring::default()).collect(),
            options,
            queue: Mutex::default(),
            wakeup: Condvar::new(),
            room_freed: Condvar::new(),
            room_lock: Mutex::default(),
            is_sleeping: AtomicBool::new(false),
            is_writer_late: AtomicBool::new(false),
            retention_state: Mutex::default(),
            is_healthy: AtomicBool::new(!has_failed),
            is_stopped: AtomicBool::new(false),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            failures: AtomicU64::new(has_failed.into()),
            unstored_count: AtomicU64::new(0),
        });
        let backlog = Arc::new(Backlog::default());
        let directory = log.directory().to_owned();
        let writer = Writer {
            shared: shared.clone(),
            log,
            backlog_handle: BacklogHandle(backlog.clone()),
            halt: Some(Box::new(halt)),
            // Recovery records may not be durable yet.
            unsynced: has_failed.into(),
            synced_at: Instant::now(),
            unconfirmed_count: 0,
            written_ns: recovery_gap.map_or_else(now_ns, |(_, _, since_ns)| since_ns),
            gaps: recovery_gap.map(|(seq, count, _)| (seq, count)).into_iter().collect(),
            unreported_gap: Gap::default(),
            is_loss_stored: false,
            has_failed,
            removal: None,
        };
        let (maintainer, helper) = (shared.clone(), shared.clone());
        let (helper_disk, helper_directory, helper_backlog) =
            (disk.clone(), directory.clone(), backlog.clone());
        let threads = vec![
            thread::Builder::new().name("audit".into()).spawn(move || writer.run())?,
            thread::Builder::new()
                .name("audit-keep".into())
                .spawn(move || maintainer.run_maintenance(&*disk, &directory, &backlog))?,
            thread::Builder::new().name("audit-catch-up".into()).spawn(move || {
                helper.help_with_backlog(&*helper_disk, &helper_directory, &helper_backlog)
            })?,
        ];
        Ok(Trail { shared, threads: Mutex::new(threads) })
    }

    /// False: the record is lost, and a gap record counts it.
    pub fn record(&self, record: &Record<'_>) -> bool {
        self.shared.record(record, self.shared.options.policy == Policy::Block)
    }

    /// Like [`Trail::record`], but waits for room until [`Trail::stop`], for
    /// [`WriterOptions::some_replies_wait`].
    pub fn record_and_wait(&self, record: &Record<'_>) -> bool {
        self.shared.record(record, true)
    }

    /// Runs it once all records queued so far, by any thread, are stored as the policy requires.
    pub fn call_when_stored(&self, callback: Callback) {
        self.shared.queue.lock().callbacks.push(callback);
        self.shared.wake();
    }

    /// True if a reply may have to wait for its record.
    pub fn delays_replies(&self) -> bool {
        self.shared.options.delays_replies()
    }

    /// True if a record is not yet stored as the policy requires.
    pub fn has_unstored_records(&self) -> bool {
        self.shared.unstored_count.load(Ordering::SeqCst) > 0
    }

    /// The last write succeeded and no ring is full, so that new records will probably be stored.
    pub fn is_healthy(&self) -> bool {
        self.shared.is_healthy.load(Ordering::Acquire)
    }

    /// Each is exact, but they are read one after the other.
    pub fn counts(&self) -> Counts {
        let shared = &self.shared;
        Counts {
            written: shared.written.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed),
            failures: shared.failures.load(Ordering::Relaxed),
            waiting_len: shared.rings.iter().map(|ring| ring.len() as u64).sum(),
            is_healthy: self.is_healthy(),
        }
    }

    /// Writes all queued records, seals the trail and stops the threads. Records that the disk
    /// refuses are lost.
    pub fn stop(&self) {
        self.shared.end_retention();
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.shared.wake();
        drop(self.shared.queue.lock());
        self.shared.wakeup.notify_one();
        self.shared.room_freed.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the audit trail panicked; this is a bug");
            }
        }
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn record(&self, record: &Record<'_>, waits_for_room: bool) -> bool {
        let ring = &self.rings[ring::thread_number() % RING_COUNT];
        // Before the record is visible, so that it never counts as stored too early. Only if
        // replies wait: all threads share the counter.
        let is_counted = self.options.delays_replies();
        if is_counted {
            self.unstored_count.fetch_add(1, Ordering::SeqCst);
        }
        let mut deadline = None;
        while !ring.push(record, self.options.ring_len) {
            let waits = waits_for_room || self.may_wait_until(&mut deadline);
            if !waits || self.is_stopped.load(Ordering::Acquire) {
                if is_counted {
                    self.unstored_count.fetch_sub(1, Ordering::SeqCst);
                }
                ring.count_lost(record.time_ns);
                self.is_healthy.store(false, Ordering::Release);
                self.wake();
                return false;
            }
            self.wake();
            let mut guard = self.room_lock.lock();
            if ring.len() >= self.options.ring_len {
                self.room_freed.wait_for(&mut guard, ROOM_STEP);
            }
        }
        if self.is_sleeping.load(Ordering::Relaxed) {
            self.wake();
        }
        true
    }

    fn may_wait_until(&self, deadline: &mut Option<Instant>) -> bool {
        if self.is_writer_late.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        if now < *deadline.get_or_insert(now + ROOM_WAIT_MAX) {
            return true;
        }
        self.is_writer_late.store(true, Ordering::Release);
        false
    }

    fn wake(&self) {
        if self.is_sleeping.swap(false, Ordering::SeqCst) {
            drop(self.queue.lock());
            self.wakeup.notify_one();
        }
    }
}

const RING_COUNT: usize = 64;
const ROOM_STEP: Duration = Duration::from_millis(50);
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
