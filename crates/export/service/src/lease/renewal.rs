//! A head that serves: it renews its lease on a thread of its own.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use super::LeaseError;
use super::driver::LeaseDriver;
use super::kill_timer::KillTimer;
use super::machine::Loss;
use super::record::Epoch;
use super::serving_right::ServingRight;
use crate::privileges;

/// The right to serve. The process must end after a loss.
pub struct HeldLease {
    head: String,
    epoch: Epoch,
    right: Arc<ServingRight>,
    is_released: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

struct Renewer {
    driver: LeaseDriver,
    right: Arc<ServingRight>,
    is_released: Arc<AtomicBool>,
}

impl HeldLease {
    /// From now on, the kernel kills the process at the end of the lease.
    pub(super) fn new(
        driver: LeaseDriver,
        head: String,
        until_ns: u64,
    ) -> Result<Self, LeaseError> {
        let failed = |doing| move |source| LeaseError::System { doing, source };
        let epoch = driver.machine.own().map_or(Epoch(0), |own| own.epoch);
        let (right, is_released) =
            (Arc::new(ServingRight::default()), Arc::new(AtomicBool::new(false)));
        let renewer = Renewer { driver, right: right.clone(), is_released: is_released.clone() };
        let (tell, armed) = mpsc::sync_channel(1);
        let run = move || renewer.run(until_ns, &tell);
        let thread =
            thread::Builder::new().name("lease".into()).spawn(run).map_err(failed("threads"))?;
        armed
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("its thread has ended")))
            .map_err(failed("timer of the lease"))?;
        tracing::info!(
            head,
            epoch = epoch.0,
            "active: this head serves the shared state directory"
        );
        Ok(HeldLease { head, epoch, right, is_released, thread })
    }

    pub(crate) fn right(&self) -> &Arc<ServingRight> {
        &self.right
    }

    pub(crate) fn head(&self) -> &str {
        &self.head
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.0
    }

    pub(crate) fn loss(&self) -> LeaseError {
        LeaseError::Lost(if self.right.is_valid() {
            "it could not be renewed in time"
        } else {
            "it has ended, or another head has taken over"
        })
    }

    /// The next head waits until the lease ends. Then the kernel kills this process if it still runs.
    pub(crate) fn abandon(self) {
        self.right.end();
        self.is_released.store(true, Ordering::Release);
    }

    /// Lets the next head serve at once. The caller has stopped all work of the server.
    pub(crate) fn release(self) {
        self.is_released.store(true, Ordering::Release);
        if self.thread.join().is_err() {
            tracing::error!("the thread of the lease panicked; this is a bug in vouch");
        }
    }
}

impl Renewer {
    fn run(mut self, until_ns: u64, armed: &mpsc::SyncSender<io::Result<()>>) {
        // The thread began before the server gave up its privileges.
        if let Err(error) = privileges::reduce() {
            tracing::error!(%error, "the thread of the lease keeps its privileges");
        }
        let timer = KillTimer::new()
            .and_then(|mut timer| self.extend(&mut timer, until_ns).map(|()| timer));
        let mut timer = match timer {
            Ok(timer) => timer,
            Err(error) => return drop(armed.send(Err(error))),
        };
        let _ = armed.send(Ok(()));
        self.driver
            .machine
            .own()
            .into_iter()
            .for_each(|own| self.driver.store.remove_before(own.epoch));
        while !self.is_released.load(Ordering::Acquire) {
            let Err(loss) = self.step(&mut timer) else { continue };
            self.right.end();
            match loss {
                Loss::Expired => tracing::error!(
                    "the lease of the shared state directory could not be renewed in time"
                ),
                Loss::TakenOver => {
                    tracing::error!("another head has taken over the shared state directory")
                }
            }
            return keep_armed(timer);
        }
        if !self.release() {
            keep_armed(timer);
        }
    }

    fn step(&mut self, timer: &mut KillTimer) -> Result<(), Loss> {
        let before_ns = self.driver.machine.serves_until_ns();
        self.driver.step()?;
        match self.driver.machine.serves_until_ns() {
            None => Err(Loss::TakenOver),
            until_ns if until_ns == before_ns => Ok(()),
            Some(until_ns) => self.extend(timer, until_ns).map_err(|_| Loss::Expired),
        }
    }

    fn extend(&self, timer: &mut KillTimer, until_ns: u64) -> io::Result<()> {
        timer.set(until_ns)?;
        self.right.extend(until_ns, self.driver.times.stop_before_ns);
        Ok(())
    }

    /// The kernel still kills the process if the storage hangs.
    fn release(&self) -> bool {
        let Some(record) = self.driver.machine.release().filter(|_| self.right.is_valid()) else {
            return false;
        };
        self.right.end();
        match self.driver.store.renew(&record) {
            Ok(()) => tracing::info!("the lease of the shared state directory is released"),
            Err(error) => {
                tracing::warn!(%error, "the lease cannot be released; the next head waits until it runs out");
                return false;
            }
        }
        true
    }
}

/// The process must not outlive the lease.
fn keep_armed(timer: KillTimer) {
    std::mem::forget(timer);
}
