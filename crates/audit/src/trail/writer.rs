//! From the threads that do operations to the disk: a bounded ring for each, one thread that
//! writes, and what is done when the disk is slow, full or broken.
//!
//! A thread that records takes its own ring's lock for as long as it takes to copy a record; the
//! disk is never waited for, unless the ring is full and the policy is to block. What must not be
//! acknowledged before its record is kept is handed in with [`Trail::after`], and done when all
//! that was recorded before is.

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
use maintenance::{Backlog, Closed, Removal, Tidying};
pub use options::{Durable, Keeping, Policy};
use ring::{Gap, Ring};
use write_loop::{Writer, now_ns};

/// What to do when all that was recorded before is kept.
pub type After = Box<dyn FnOnce() + Send>;

/// A trail that is being written.
pub struct Trail {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records written.
    pub written: u64,
    /// Records lost.
    pub lost: u64,
    /// Times that the disk refused.
    pub failures: u64,
    /// Bytes that wait in rings.
    pub waiting_len: u64,
    /// Whether the disk took the last group.
    pub is_healthy: bool,
}

struct Shared {
    rings: Vec<Ring>,
    keeping: Keeping,
    queue: Mutex<Queue>,
    news: Condvar,
    /// Told when rings have room again.
    room: Condvar,
    room_turn: Mutex<()>,
    /// The writer sleeps until somebody tells it.
    sleeping: AtomicBool,
    tidying: Mutex<Tidying>,
    healthy: AtomicBool,
    stopped: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
    failures: AtomicU64,
    /// Records that were taken and are not kept yet, as the policy has it.
    behind: AtomicU64,
}

#[derive(Default)]
struct Queue {
    after: Vec<After>,
    removal: Option<Removal>,
    /// Nobody writes any more.
    has_ended: bool,
}

impl Trail {
    /// Starts the threads: one that writes, one that compresses and prunes, one that helps it. A
    /// log that the disk has refused is tried again, and counts as refused until then. `halt` is
    /// called at most once, under [`Policy::Halt`].
    pub fn start(log: Log, disk: Arc<dyn Disk>, keeping: Keeping, halt: impl Fn() + Send + 'static) -> io::Result<Trail> {
        let refuses = log.refused().is_some();
        let told = log.told_unwritten();
        let shared = Arc::new(Shared {
            rings: (0..RING_COUNT).map(|_| Ring::default()).collect(),
            keeping,
            queue: Mutex::default(),
            news: Condvar::new(),
            room: Condvar::new(),
            room_turn: Mutex::default(),
            sleeping: AtomicBool::new(false),
            tidying: Mutex::default(),
            healthy: AtomicBool::new(!refuses),
            stopped: AtomicBool::new(false),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            failures: AtomicU64::new(refuses.into()),
            behind: AtomicU64::new(0),
        });
        let backlog = Arc::new(Backlog::default());
        let directory = log.directory().to_owned();
        let writer = Writer {
            shared: shared.clone(),
            log,
            closed: Closed(backlog.clone()),
            halt: Some(Box::new(halt)),
            // What the start has to tell is not on the disk.
            unsynced: refuses.into(),
            synced_at: Instant::now(),
            unkept: 0,
            written_ns: told.map_or_else(now_ns, |(_, _, since_ns)| since_ns),
            gaps: told.map(|(seq, count, _)| (seq, count)).into_iter().collect(),
            held: Gap::default(),
            is_counted: false,
            refuses,
            removal: None,
        };
        let (keeper, helper) = (shared.clone(), shared.clone());
        let (disk_too, directory_too, backlog_too) = (disk.clone(), directory.clone(), backlog.clone());
        let threads = vec![
            thread::Builder::new().name("audit".into()).spawn(move || writer.run())?,
            thread::Builder::new().name("audit-keep".into()).spawn(move || keeper.keep_house(&*disk, &directory, &backlog))?,
            thread::Builder::new()
                .name("audit-catch-up".into())
                .spawn(move || helper.catch_up(&*disk_too, &directory_too, &backlog_too))?,
        ];
        Ok(Trail { shared, threads: Mutex::new(threads) })
    }

    /// Takes a record, whose sequence number is the writer's to give. False if it is lost, which
    /// the trail will tell.
    pub fn record(&self, record: &Record<'_>) -> bool {
        self.shared.record(record, self.shared.keeping.policy == Policy::Block)
    }

    /// Likewise; waits for room, whatever the policy. False only once the trail has been stopped.
    /// For [`Keeping::waits`].
    pub fn record_and_wait(&self, record: &Record<'_>) -> bool {
        self.shared.record(record, true)
    }

    /// Does something when all that was recorded before, by any thread, is kept as the policy has
    /// it.
    pub fn after(&self, after: After) {
        self.shared.queue.lock().after.push(after);
        self.shared.wake();
    }

    /// Whether replies, or some, must wait for their records.
    pub fn holds(&self) -> bool {
        self.shared.keeping.holds()
    }

    /// Whether anything that was recorded is not kept yet.
    pub fn is_behind(&self) -> bool {
        self.shared.behind.load(Ordering::SeqCst) > 0
    }

    /// Whether the disk took the last group, and there is room: what is recorded now will most
    /// likely be kept.
    pub fn is_healthy(&self) -> bool {
        self.shared.healthy.load(Ordering::Acquire)
    }

    /// What was counted.
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

    /// Writes what is left, seals the end and ends the threads. What the disk refuses now is lost,
    /// and said in the log.
    pub fn stop(&self) {
        self.shared.end_tidying();
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.wake();
        // Also where it waits for a disk that refuses; with the lock held, so that it is not between its
        // last look and its sleep.
        drop(self.shared.queue.lock());
        self.shared.news.notify_one();
        self.shared.room.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the audit trail failed; this is a fault of this program");
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
    fn record(&self, record: &Record<'_>, waits: bool) -> bool {
        let ring = &self.rings[ring::mine() % RING_COUNT];
        // Before it can be taken, so that it never counts as kept too early. Only where replies wait for
        // it: all threads share it.
        let counts = self.keeping.holds();
        if counts {
            self.behind.fetch_add(1, Ordering::SeqCst);
        }
        while !ring.push(record, self.keeping.ring_len) {
            if !waits || self.stopped.load(Ordering::Acquire) {
                if counts {
                    self.behind.fetch_sub(1, Ordering::SeqCst);
                }
                ring.lose(record.time_ns);
                self.healthy.store(false, Ordering::Release);
                self.wake();
                return false;
            }
            self.wake();
            let mut turn = self.room_turn.lock();
            self.room.wait_for(&mut turn, ROOM_STEP);
        }
        if self.sleeping.load(Ordering::Relaxed) {
            self.wake();
        }
        true
    }

    fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // With the lock held, so that it is not between its last look and its sleep.
            drop(self.queue.lock());
            self.news.notify_one();
        }
    }
}

/// More threads than this share rings.
const RING_COUNT: usize = 64;
/// How often who waits for room looks by itself.
const ROOM_STEP: Duration = Duration::from_millis(50);
