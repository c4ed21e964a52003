//! When the name service is asked again what may have changed, and what ends by its answers. Each
//! kind has one thread at most, and none waits for another: clients whose reverse zones are slow do
//! not delay that an address which a host gave up loses its rights. Never sleeps itself; what is
//! asked, and of whom, is the business of `hosts`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exports::reload::Reloader;
use crate::hosts::Hosts;
use crate::thread_pool::{Pool, TaskOrigin};
use crate::transport::accept;

/// What is asked again and again.
pub(crate) struct RefreshSchedule {
    every_ms: u64,
    /// Of hosts that exports name.
    addresses: Round,
    /// Names of clients that stay connected, where exports may be for them by these.
    clients: Round,
    /// The same, where they are told in records and nothing else: in the queue of such names, which
    /// has threads of its own.
    told_due_ms: u64,
    /// Clients that were asked for and are not known.
    requested: Job,
    /// What is held by whom no line is for any more.
    lost: Job,
}

impl RefreshSchedule {
    /// For the first time when this has passed.
    pub(crate) fn new(every: Duration, now_ms: u64) -> Self {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
        let due_ms = now_ms.saturating_add(every_ms);
        let round = || Round { due_ms, job: Job::default() };
        RefreshSchedule {
            every_ms,
            addresses: round(),
            clients: round(),
            told_due_ms: due_ms,
            requested: Job::default(),
            lost: Job::default(),
        }
    }

    /// Has done what is due, by threads that may sleep.
    pub(crate) fn start_due(&mut self, now_ms: u64, reloader: &Arc<Reloader>) {
        let driver = &reloader.driver;
        let next_ms = now_ms.saturating_add(self.every_ms);
        for (round, ask) in [(&mut self.addresses, Hosts::refresh_addresses as fn(&Hosts)), (&mut self.clients, Hosts::refresh_clients)] {
            let hosts = driver.hosts.clone();
            if now_ms >= round.due_ms && round.job.begin(&driver.names, move || ask(&hosts)) {
                round.due_ms = next_ms;
            }
        }
        if now_ms >= self.told_due_ms {
            self.told_due_ms = next_ms;
            accept::tell_names_again(driver);
        }
        // Clients wait for these (NFS4ERR_DELAY).
        if driver.hosts.has_requested() {
            let hosts = driver.hosts.clone();
            self.requested.begin(&driver.names, move || hosts.look_up_requested());
        }
        if driver.hosts.has_changed() {
            let reloader = reloader.clone();
            self.lost.begin(&driver.names, move || reloader.end_lost());
        }
    }
}

/// Something to do from time to time.
struct Round {
    due_ms: u64,
    job: Job,
}

/// Something that one thread does at a time.
#[derive(Default)]
struct Job {
    is_running: Arc<AtomicBool>,
}

impl Job {
    /// Has it done, unless it still is.
    fn begin(&self, pool: &Pool, work: impl FnOnce() + Send + 'static) -> bool {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return false;
        }
        let running = Running(self.is_running.clone());
        pool.submit(TaskOrigin::Server, move || {
            let _running = running;
            work();
        });
        true
    }
}

/// It runs for as long as this is there: also one that panics, or that the pool does not take, has
/// ended.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_job_is_done_once_at_a_time_and_again_after_a_panic() {
        let pool = Pool::new("test", 2, 2, || ());
        let (job, other) = (Job::default(), Job::default());
        let (go, wait) = mpsc::channel::<()>();
        let (done, ended) = mpsc::channel();
        assert!(job.begin(&pool, move || {
            wait.recv().unwrap();
            panic!("it is told, and no more");
        }));
        assert!(!job.begin(&pool, || unreachable!("it still runs")));
        assert!(other.begin(&pool, move || done.send(()).unwrap()));
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
        go.send(()).unwrap();
        let (done, ended) = mpsc::channel();
        let again = || {
            let done = done.clone();
            job.begin(&pool, move || done.send(()).unwrap())
        };
        while !again() {
            std::thread::yield_now();
        }
        ended.recv_timeout(Duration::from_secs(60)).unwrap();
        pool.stop();
        while job.is_running.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert!(again() && again(), "what is not taken does not run");
    }
}
