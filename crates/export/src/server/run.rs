//! Runs an open server until it is told to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;

use super::open::Server;
use crate::error::ExportError;
use crate::hosts::refresh::RefreshSchedule;
use crate::transport::accept;
use crate::worker::Worker;
use crate::{clock, control};

impl Server {
    /// Serves until `stop`, which is asked ten times a second, returns true; then lets replies
    /// under way leave.
    ///
    /// # Errors
    /// When a thread can't be started, or ends by itself.
    pub fn run(self, stop: impl Fn() -> bool) -> Result<(), ExportError> {
        let system = |source| ExportError::System { doing: "threads", source };
        let driver = self.driver;
        driver.recovery.start().map_err(system)?;
        let mut threads: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for (number, poll) in self.polls.into_iter().enumerate() {
            let worker = Worker::new(number, poll, driver.clone());
            threads.push(thread::Builder::new().name(format!("export-{number}")).spawn(move || worker.run()).map_err(system)?);
        }
        let (listeners, shared) = (self.listeners, driver.clone());
        threads.push(thread::Builder::new().name("accept".into()).spawn(move || accept::run(listeners, &shared)).map_err(system)?);
        let (control, report, reloader) = (self.control, self.report.clone(), self.reloader.clone());
        let answer = move || {
            control::run(&control, &report, &|| reloader.reload());
            Ok(())
        };
        threads.push(thread::Builder::new().name("control".into()).spawn(answer).map_err(system)?);
        let page_stop = Arc::new(Notify::new());
        if let Some(listener) = self.page {
            let (report, stop) = (self.report.clone(), page_stop.clone());
            threads.push(
                thread::Builder::new()
                    .name("page".into())
                    .spawn(move || vouch_daemon::metrics_page::run(listener, &report, &stop))
                    .map_err(system)?,
            );
        }
        tracing::info!(addresses = ?self.addresses, "exporting");
        let audit = driver.audit.clone();
        audit.iter().for_each(|audit| audit.started());

        let (mut due_ms, mut flush_ms, mut expire_ms) = (0, 0, 0);
        let mut refresh = RefreshSchedule::new(self.resolve_every, clock::mono_ms());
        let mut ended = false;
        while !stop() && !ended && !audit.as_ref().is_some_and(|audit| audit.has_halted()) {
            let now = clock::now();
            if now.mono_ms >= due_ms {
                let tick = driver.engine.tick(now);
                driver.apply(tick.effects);
                due_ms = tick.next_due_ms.min(now.mono_ms + ENGINE_TICK_MS);
            }
            if now.mono_ms >= flush_ms {
                flush_ms = now.mono_ms + FLUSH_TICK_MS;
                self.opener.iter().for_each(|opener| opener.flush());
                self.reloader.sources.maintain();
            }
            if now.mono_ms >= expire_ms {
                expire_ms = now.mono_ms + EXPIRE_TICK_MS;
                driver.gss.iter().for_each(|gss| gss.expire());
                audit.iter().for_each(|audit| {
                    audit.look_at_keys();
                    audit.tell_left_out();
                });
            }
            refresh.start_due(now.mono_ms, &self.reloader);
            thread::sleep(STOP_STEP);
            ended = threads.iter().any(JoinHandle::is_finished);
        }
        driver.stop.store(true, Ordering::Release);
        driver.inboxes.iter().for_each(|inbox| inbox.wake());
        page_stop.notify_one();
        for thread in threads {
            thread.join().map_err(|_| ExportError::ThreadEnded)?.map_err(system)?;
        }
        driver.callback_dialers.stop();
        driver.pool.stop();
        driver.names.stop();
        driver.gss.iter().for_each(|gss| gss.stop());
        driver.recovery.stop();
        audit.iter().for_each(|audit| audit.stop());
        let halted = audit.as_ref().is_some_and(|audit| audit.has_halted());
        self.opener.iter().for_each(|opener| opener.flush());
        tracing::info!("stopped");
        match (ended, halted) {
            (true, _) => Err(ExportError::ThreadEnded),
            (_, true) => Err(ExportError::Halted),
            _ => Ok(()),
        }
    }
}

/// How often the order to stop is looked for.
const STOP_STEP: Duration = Duration::from_millis(100);

/// The engine is told of time at least this often.
const ENGINE_TICK_MS: u64 = 1000;

/// Contexts whose tickets have ended are looked for this often.
const EXPIRE_TICK_MS: u64 = 60_000;

/// Which names were given out is written down this often.
const FLUSH_TICK_MS: u64 = 5000;
