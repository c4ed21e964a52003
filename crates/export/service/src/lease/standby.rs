//! A head that waits for its turn. It answers status requests, and no client.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::sync::Notify;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_daemon::status::{DaemonKind, DaemonStatus};
use vouch_daemon::status_server::{self, StatusListeners, StatusSource};
use vouch_daemon::status_socket::StatusSocket;

use super::admission::Admission;
use super::driver::LeaseDriver;
use super::machine::LeaseMachine;
use super::renewal::HeldLease;
use super::serving_right::clock_ns;
use super::{LeaseError, SharedState};
use crate::config::ExportConfig;
use crate::error::ExportError;
use crate::monitoring::status::{HeadRole, HeadStatus, SiteStatus, Status};
use crate::privileges;
use crate::state_directory::control_path;

/// Returns when this head may serve. `notify` gets a line when the head that serves changes. Call it
/// before any thread starts: the fencing program gets the privileges of this thread.
///
/// # Errors
/// The state directory, the name of the head, or a socket for status requests is unusable.
pub fn wait_for_lease(
    config: &ExportConfig,
    shared: &SharedState,
    mut notify: impl FnMut(&str),
) -> Result<HeldLease, ExportError> {
    let mut driver = LeaseDriver::open(shared, &config.state)?;
    let failed = |source| LeaseError::System { doing: "sockets", source };
    let mut admission = Admission::closed(&config.passed).map_err(failed)?;
    let reporter = StandbyReporter::start(config, shared)?;
    let mut line = String::new();
    loop {
        let active = driver.machine.serves_until_ns();
        admission
            .set_open(active.is_some() || driver.machine.is_next(clock_ns()))
            .map_err(failed)?;
        if let Some(until_ns) = active {
            reporter.stop();
            return Ok(HeldLease::new(driver, shared.head.clone(), until_ns)?);
        }
        let now = describe(&driver.machine);
        if now != line {
            tracing::info!(head = shared.head, "{now}");
            notify(&now);
            line = now;
        }
        reporter.set(&driver.machine);
        // A standby has nothing to lose.
        let _ = driver.step();
    }
}

fn describe(machine: &LeaseMachine) -> String {
    match (machine.own(), machine.other()) {
        (Some(own), Some(before)) => {
            format!("standby: taking over in epoch {} after {}", own.epoch, before.head)
        }
        (Some(own), None) => format!("standby: taking over in epoch {}", own.epoch),
        (None, Some(other)) => format!("standby: {} has epoch {}", other.head, other.epoch),
        (None, None) => "standby".to_owned(),
    }
}

struct StandbyReporter {
    source: Arc<StandbyStatus>,
    stop: Arc<Notify>,
    thread: JoinHandle<()>,
}

struct StandbyStatus {
    site: SiteStatus,
    head: Mutex<HeadStatus>,
}

impl StandbyReporter {
    fn start(config: &ExportConfig, shared: &SharedState) -> Result<Self, ExportError> {
        let failed = |address| move |source| ExportError::Listen { address, source };
        let page = config
            .metrics
            .map(|address| TcpListener::bind(address).map_err(failed(address)))
            .transpose()?;
        let control = StatusSocket::bind(&control_path(&config.state, Some(&shared.head)));
        let control = control
            .inspect_err(|error| tracing::info!(%error, "no control socket in the state directory"))
            .ok();
        let sockets =
            [control, StatusSocket::open(DaemonKind::Export, config.runtime_directory.as_deref())];
        let listeners = StatusListeners { page, sockets: sockets.into_iter().flatten().collect() };
        let site =
            SiteStatus { state: config.state.display().to_string(), ..SiteStatus::default() };
        let head = HeadStatus {
            head: shared.head.clone(),
            role: HeadRole::Standby,
            ..HeadStatus::default()
        };
        let source = Arc::new(StandbyStatus { site, head: Mutex::new(head) });
        let (stop, served) = (Arc::new(Notify::new()), source.clone());
        let until = stop.clone();
        let thread = thread::Builder::new().name("standby".into()).spawn(move || {
            let reduced = privileges::reduce().map_err(std::io::Error::from);
            if let Err(error) = reduced.and_then(|_| status_server::run(listeners, &served, &until))
            {
                tracing::warn!(%error, "the standby does not answer status requests");
            }
        });
        let thread = thread.map_err(|source| LeaseError::System { doing: "threads", source })?;
        Ok(StandbyReporter { source, stop, thread })
    }

    fn set(&self, machine: &LeaseMachine) {
        let mut status = self.source.head.lock();
        let other = machine.other();
        status.epoch = other.map_or(0, |other| other.epoch.0);
        status.holder = other.map(|other| other.head.clone());
    }

    /// The sockets are free afterwards.
    fn stop(self) {
        self.stop.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the thread for status requests panicked; this is a bug in vouch");
        }
    }
}

impl StatusSource for StandbyStatus {
    fn metrics(&self) -> String {
        let mut page = Exposition::of_daemon();
        let epoch = self.head.lock().epoch;
        page.single(
            "vouch_export_head_active",
            Metric::Gauge,
            "1 if this head serves the shared state directory, 0 for a standby.",
            0,
        );
        page.single(
            "vouch_export_head_epoch",
            Metric::Gauge,
            "Epoch of the shared state directory.",
            epoch,
        );
        page.into_text()
    }

    fn health(&self, _: u64) -> (bool, String) {
        (false, "{\"status\":\"standby\"}\n".to_owned())
    }

    fn status(&self) -> DaemonStatus {
        let status = Status {
            version: env!("CARGO_PKG_VERSION").into(),
            site: self.site.clone(),
            head: Some(self.head.lock().clone()),
            ..Status::default()
        };
        DaemonStatus::of_process(DaemonKind::Export, &status)
    }

    fn reload(&self) -> Option<Result<Vec<String>, String>> {
        Some(Ok(vec!["this head is a standby; it reads the list when it takes over".to_owned()]))
    }
}
