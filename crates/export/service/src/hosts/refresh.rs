//! Each kind of refresh has its own thread: slow reverse zones do not delay the loss of an
//! address's rights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exports::reload::Reloader;
use crate::hosts::Hosts;
use crate::thread_pool::{Pool, TaskOrigin};
use crate::transport::accept;

pub(crate) struct RefreshSchedule {
    every_ms: u64,
    addresses: Round,
    clients: Round,
    audit_names_due_ms: u64,
    requested: Job,
    lost: Job,
}

impl RefreshSchedule {
    pub(crate) fn new(every: Duration, now_ms: u64) -> Self {
        let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).max(1);
        let due_ms = now_ms.saturating_add(every_ms);
        let round = || Round { due_ms, job: Job::default() };
        RefreshSchedule {
            every_ms,
            addresses: round(),
            clients: round(),
            audit_names_due_ms: due_ms,
            requested: Job::default(),
            lost: Job::default(),
        }
    }

    pub(crate) fn start_due(&mut self, now_ms: u64, reloader: &Arc<Reloader>) {
        let driver = &reloader.driver;
        let next_ms = now_ms.saturating_add(self.every_ms);
        for (round, ask) in [
            (&mut self.addresses, Hosts::refresh_addresses as fn(&Hosts)),
            (&mut self.clients, Hosts::refresh_clients),
        ] {
            let hosts = driver.hosts.clone();
            if now_ms >= round.due_ms && round.job.begin(&driver.names, move || ask(&hosts)) {
                round.due_ms = next_ms;
            }
        }
        if now_ms >= self.audit_names_due_ms {
            self.audit_names_due_ms = next_ms;
            accept::refresh_audit_names(driver);
        }
        // Clients with NFS4ERR_DELAY wait for these.
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

struct Round {
    due_ms: u64,
    job: Job,
}

#[derive(Default)]
struct Job {
    is_running: Arc<AtomicBool>,
}

impl Job {
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
    fn job_runs_once_at_a_time_and_again_after_panic() {
        let pool = Pool::new("test", 2, 2, || ());
        let (job, other) = (Job::default(), Job::default());
        let (go, wait) = mpsc::channel::<()>();
        let (done, ended) = mpsc::channel();
        assert!(job.begin(&pool, move || {
            wait.recv().unwrap();
            panic!("a panic on purpose");
        }));
        assert!(!job.begin(&pool, || unreachable!("a second run starts")));
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
        assert!(again() && again(), "a job that the stopped pool drops does not run");
    }
}
