//! Look-ups run on threads of their own. Calls with the same question share one and wait for a
//! limited time.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use vouch_daemon::rate_limit::Throttle;

use super::cache::{Answer, Generation};
use crate::clock;
use crate::limits::{LOOKUP_THREADS_MAX, REFRESHES_MAX, WAITING_MAX};
use crate::monitoring::counter::Counter;
use crate::monitoring::status::NameServiceStatus;
use crate::thread_pool::{Pool, TaskOrigin};

thread_local! {
    static ORIGIN: Cell<TaskOrigin> = const { Cell::new(TaskOrigin::Server) };
}

pub(crate) fn set_origin(origin: TaskOrigin) {
    ORIGIN.set(origin);
}

pub(super) struct Lookups {
    pool: Pool,
    /// Longest wait of a call for a look-up.
    wait_ms: u64,
    /// Until then, calls wait only [`WAIT_SHORT_MS`]. 0 without an outage.
    trouble_until_ms: AtomicU64,
    refreshes: AtomicUsize,
    started: Counter,
    failed: Counter,
    late: Counter,
    refused: Counter,
    outage: Mutex<Outage>,
    refusal_lines: Mutex<Throttle>,
}

#[derive(Default)]
struct Outage {
    since_ms: Option<u64>,
    next_line_ms: u64,
}

impl Lookups {
    pub(super) fn new(wait: Duration) -> Self {
        Lookups {
            pool: Pool::new("name-lookup", LOOKUP_THREADS_MAX, WAITING_MAX, || ()),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            trouble_until_ms: AtomicU64::new(0),
            refreshes: AtomicUsize::new(0),
            started: Counter::default(),
            failed: Counter::default(),
            late: Counter::default(),
            refused: Counter::default(),
            outage: Mutex::default(),
            refusal_lines: Mutex::new(Throttle::of_lines()),
        }
    }

    pub(super) fn run(&self, task: impl FnOnce() + Send + 'static) -> bool {
        let origin = ORIGIN.get();
        if self.pool.is_crowded(origin) {
            return false;
        }
        self.started.add(1);
        self.pool.submit(origin, task);
        true
    }

    pub(super) fn may_refresh(&self) -> bool {
        self.refreshes.load(Ordering::Relaxed) < REFRESHES_MAX
    }

    pub(super) fn refresh_began(&self) {
        self.refreshes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refresh_ended(&self) {
        self.refreshes.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn wait(&self, began_ms: u64) -> Duration {
        let now_ms = clock::mono_ms();
        let longest = if now_ms < self.trouble_until_ms.load(Ordering::Relaxed) {
            self.wait_ms.min(WAIT_SHORT_MS)
        } else {
            self.wait_ms
        };
        Duration::from_millis(longest.saturating_sub(now_ms.saturating_sub(began_ms)))
    }

    pub(super) fn failed(&self) {
        self.failed.add(1);
        self.in_trouble("a look-up of a user or group failed");
    }

    pub(super) fn count_late_answer(&self) {
        self.late.add(1);
        self.in_trouble("a look-up of a user or group takes too long");
    }

    fn in_trouble(&self, what: &str) {
        let now_ms = clock::mono_ms();
        self.trouble_until_ms.store(now_ms + TROUBLE_MS, Ordering::Relaxed);
        let mut outage = self.outage.lock();
        outage.since_ms.get_or_insert(now_ms);
        if now_ms >= outage.next_line_ms {
            outage.next_line_ms = now_ms + LINE_EVERY_MS;
            tracing::warn!(
                "the name service does not answer: {what}; known users keep their rights for the time of --identity-outage, calls of others get NFS4ERR_DELAY; check getent passwd"
            );
        }
    }

    /// Ends an outage if the same question failed before, or nothing has failed for a while: users
    /// of /etc/passwd are found during outages too.
    pub(super) fn succeeded(&self, failed_before: bool) {
        let (now_ms, trouble_until_ms) =
            (clock::mono_ms(), self.trouble_until_ms.load(Ordering::Relaxed));
        if trouble_until_ms == 0 || !failed_before && now_ms < trouble_until_ms + TROUBLE_MS {
            return;
        }
        self.trouble_until_ms.store(0, Ordering::Relaxed);
        if let Some(since_ms) = self.outage.lock().since_ms.take() {
            tracing::info!(
                seconds = now_ms.saturating_sub(since_ms) / 1000,
                "the name service answers again"
            );
        }
    }

    pub(super) fn refuse(&self, caller: &str, client: SocketAddr) {
        self.refused.add(1);
        if let Some(omitted) = self.refusal_lines.lock().admit(client.ip(), clock::mono_ms()) {
            tracing::warn!(
                caller,
                %client,
                omitted,
                "NFS4ERR_DELAY: the name service does not answer, and this user is not cached; the client repeats the call"
            );
        }
    }

    pub(super) fn status(&self) -> NameServiceStatus {
        NameServiceStatus {
            lookups: self.started.get(),
            failed: self.failed.get(),
            late: self.late.get(),
            refused: self.refused.get(),
            waiting: self.pool.load().0,
            silent_ms: self
                .outage
                .lock()
                .since_ms
                .map(|since_ms| clock::mono_ms().saturating_sub(since_ms)),
        }
    }

    pub(super) fn stop(&self) {
        self.pool.stop();
    }
}

pub(super) struct PendingLookup<T> {
    pub(super) began_ms: u64,
    pub(super) generation: Generation,
    answer: Mutex<Option<Answer<T>>>,
    answered: Condvar,
}

impl<T: Clone> PendingLookup<T> {
    pub(super) fn new(generation: Generation) -> Self {
        PendingLookup {
            began_ms: clock::mono_ms(),
            generation,
            answer: Mutex::new(None),
            answered: Condvar::new(),
        }
    }

    pub(super) fn complete(&self, answer: Answer<T>) {
        *self.answer.lock() = Some(answer);
        self.answered.notify_all();
    }

    pub(super) fn wait(&self, longest: Duration) -> Option<Answer<T>> {
        let mut answer = self.answer.lock();
        self.answered.wait_while_for(&mut answer, |answer| answer.is_none(), longest);
        answer.clone()
    }
}

/// Enough for local users and for a directory that is slow but answers.
const WAIT_SHORT_MS: u64 = 250;
const TROUBLE_MS: u64 = 30_000;
const LINE_EVERY_MS: u64 = 60_000;
