use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::open::Server;
use crate::audit::Audit;
use crate::clock;
use crate::driver::Driver;
use crate::error::ExportError;
use crate::hosts::refresh::RefreshSchedule;
use crate::lease::{HeldLease, LeaseError};
use crate::limits::TLS_CHECK_MS;
use crate::management::grpc;
use crate::transport::accept;
use crate::worker::Worker;

type ServerThread = JoinHandle<io::Result<()>>;

/// Threads with a runtime of their own.
#[derive(Default)]
struct Stops {
    status: Arc<Notify>,
    management: Arc<Notify>,
}

impl Server {
    /// Serves until `stop` returns true, then lets pending replies leave. Calls `stop` ten times a
    /// second.
    pub fn run(mut self, stop: impl Fn() -> bool) -> Result<(), ExportError> {
        let system = |source| ExportError::System { doing: "threads", source };
        let driver = self.driver.clone();
        driver.recovery.start().map_err(system)?;
        let stops = Stops::default();
        let threads = self.start_threads(&stops).map_err(system)?;
        tracing::info!(addresses = ?self.addresses(), "exporting");
        driver.audit.iter().for_each(|audit| audit.started());

        let ended = self.tick_until(|| {
            let ended = threads.iter().any(JoinHandle::is_finished);
            let is_lost = driver.right.as_ref().is_some_and(|right| right.is_ending());
            (ended
                || is_lost
                || stop()
                || driver.audit.as_ref().is_some_and(|audit| audit.has_halted()))
            .then_some(ended)
        });
        if let Some(lease) = self
            .lease
            .as_ref()
            .filter(|_| driver.right.as_ref().is_some_and(|right| right.is_ending()))
        {
            // At once: the storage may hang, and another head is about to serve.
            return Err(lease.loss().into());
        }
        driver.stop.store(true, Ordering::Release);
        driver.inboxes.iter().for_each(|inbox| inbox.wake());
        stops.status.notify_one();
        stops.management.notify_one();
        for thread in threads {
            thread.join().map_err(|_| ExportError::ThreadEnded)?.map_err(system)?;
        }
        stop_pools(&driver);
        let unfinished = if self.lease.is_some() { wait_for_operations(&driver) } else { 0 };
        driver.recovery.stop();
        self.reloader.accounts.stop();
        driver.audit.iter().for_each(|audit| audit.stop());
        let halted = driver.audit.as_ref().is_some_and(|audit| audit.has_halted());
        self.opener.iter().for_each(|opener| opener.flush());
        if let Some(lease) = self.lease.take() {
            end_lease(lease, unfinished)?;
        }
        tracing::info!("stopped");
        match (ended, halted) {
            (true, _) => Err(ExportError::ThreadEnded),
            (_, true) => Err(ExportError::Halted),
            _ => Ok(()),
        }
    }

    fn start_threads(&mut self, stops: &Stops) -> io::Result<Vec<ServerThread>> {
        let spawn = |name: String, body: Box<dyn FnOnce() -> io::Result<()> + Send>| {
            thread::Builder::new().name(name).spawn(body)
        };
        let mut threads = Vec::new();
        for (number, poll) in std::mem::take(&mut self.polls).into_iter().enumerate() {
            let worker = Worker::new(number, poll, self.driver.clone());
            threads.push(spawn(format!("export-{number}"), Box::new(move || worker.run()))?);
        }
        let (listeners, balancers, driver) = (
            std::mem::take(&mut self.sockets.listeners),
            std::mem::take(&mut self.sockets.balancers),
            self.driver.clone(),
        );
        threads.push(spawn(
            "accept".into(),
            Box::new(move || accept::run(listeners, balancers, &driver)),
        )?);
        let (listeners, report, stop) =
            (std::mem::take(&mut self.sockets.status), self.report.clone(), stops.status.clone());
        threads.push(spawn(
            "status".into(),
            Box::new(move || vouch_daemon::status_server::run(listeners, &report, &stop)),
        )?);
        if let Some(access) = self.reloader.management.clone() {
            let (listeners, report, stop) = (
                std::mem::take(&mut self.sockets.management),
                self.report.clone(),
                stops.management.clone(),
            );
            threads.push(spawn(
                "management".into(),
                Box::new(move || grpc::run(listeners, &report, &access, &stop)),
            )?);
        }
        Ok(threads)
    }

    fn tick_until<T>(&self, done: impl Fn() -> Option<T>) -> T {
        let driver = &self.driver;
        let (mut engine_due_ms, mut flush_due_ms, mut expire_due_ms) = (0, 0, 0);
        let mut tls_due_ms = clock::mono_ms() + TLS_CHECK_MS;
        let mut refresh = RefreshSchedule::new(self.resolve_every, clock::mono_ms());
        loop {
            if let Some(value) = done() {
                return value;
            }
            let now = clock::now();
            if now.mono_ms >= engine_due_ms {
                let tick = driver.engine.tick(now);
                driver.apply(tick.effects);
                engine_due_ms = tick.next_due_ms.min(now.mono_ms + ENGINE_TICK_MS);
            }
            driver.apply(driver.engine.recall_locally_changed(now));
            if now.mono_ms >= flush_due_ms {
                self.opener.iter().for_each(|opener| opener.flush());
                self.reloader.sources.maintain();
                driver.close_removed_files();
                // After a stall too, some time is left between two looks at the snapshots.
                flush_due_ms = clock::mono_ms() + FLUSH_TICK_MS;
                driver.remote.check_stalls(now.mono_ms);
            }
            if now.mono_ms >= expire_due_ms {
                expire_due_ms = now.mono_ms + EXPIRE_TICK_MS;
                driver.gss.iter().for_each(|gss| gss.expire());
                driver.audit.iter().for_each(|audit| maintain_audit(audit));
            }
            if now.mono_ms >= tls_due_ms {
                tls_due_ms = now.mono_ms + TLS_CHECK_MS;
                driver.check_tls();
                self.reloader.management.iter().for_each(|access| access.reload_if_changed());
            }
            refresh.start_due(now.mono_ms, &self.reloader);
            thread::sleep(STOP_POLL);
        }
    }
}

fn maintain_audit(audit: &Audit) {
    audit.check_keytab();
    audit.record_omitted_refusals();
}

fn stop_pools(driver: &Driver) {
    driver.callback_dialers.stop();
    driver.pool.stop();
    driver.names.stop();
    driver.remote.stop();
    driver.gss.iter().for_each(|gss| gss.stop());
}

/// Returns the number of those that do not end in time.
fn wait_for_operations(driver: &Driver) -> usize {
    let until = Instant::now() + driver.limits.drain_max;
    while driver.running_operations() > 0 && Instant::now() < until {
        thread::sleep(OPERATIONS_POLL);
    }
    driver.running_operations()
}

/// After a release, the next head serves at once. An operation that hangs in the kernel could still
/// change files then, so the next head has to wait and to fence this one.
fn end_lease(lease: HeldLease, unfinished: usize) -> Result<(), LeaseError> {
    if unfinished == 0 {
        lease.release();
        return Ok(());
    }
    lease.abandon();
    Err(LeaseError::Unfinished(unfinished))
}

const STOP_POLL: Duration = Duration::from_millis(100);

const OPERATIONS_POLL: Duration = Duration::from_millis(10);

const ENGINE_TICK_MS: u64 = 1000;

const EXPIRE_TICK_MS: u64 = 60_000;

const FLUSH_TICK_MS: u64 = 5000;
