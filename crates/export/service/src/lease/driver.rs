//! Carries out the steps of the protocol.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use vouch_daemon::rate_limit::Throttle;

use super::fence::FenceRun;
use super::machine::{Fencing, LeaseMachine, Loss, Step, StepResult};
use super::record::is_head_name;
use super::serving_right::clock_ns;
use super::store::LeaseStore;
use super::times::LeaseTimes;
use super::{LeaseError, SharedState};
use crate::error::ExportError;
use crate::state_directory;

pub(super) struct LeaseDriver {
    pub(super) machine: LeaseMachine,
    pub(super) store: LeaseStore,
    pub(super) times: LeaseTimes,
    fence_program: Vec<String>,
    fence: Option<FenceRun>,
    lines: Throttle,
    /// Keeps out a server that does not share the state directory.
    _lock: Option<File>,
}

impl LeaseDriver {
    pub(super) fn open(shared: &SharedState, state: &Path) -> Result<Self, ExportError> {
        if !is_head_name(&shared.head) {
            return Err(LeaseError::Name(shared.head.clone()).into());
        }
        let lock = state_directory::lock_for_heads(state)?;
        let mut process = [0; 8];
        let failed = |error: getrandom::Error| LeaseError::System {
            doing: "randomness",
            source: io::Error::other(error.to_string()),
        };
        getrandom::fill(&mut process).map_err(failed)?;
        let process = u64::from_ne_bytes(process);
        let fencing = match (shared.fence.is_empty(), shared.is_fence_required) {
            (true, _) => Fencing::None,
            (false, false) => Fencing::Optional,
            (false, true) => Fencing::Required,
        };
        let (times, store) =
            (LeaseTimes::of(shared.lease), LeaseStore::open(state, &shared.head, process)?);
        let machine = LeaseMachine::new(shared.head.clone(), process, times, fencing);
        let (fence_program, lines) = (shared.fence.clone(), Throttle::of_lines());
        Ok(LeaseDriver { machine, store, times, fence_program, fence: None, lines, _lock: lock })
    }

    /// One step. A step without work sleeps for [`SLICE`] at most. Returns the loss of a head that
    /// served.
    pub(super) fn step(&mut self) -> Result<(), Loss> {
        self.poll_fence();
        let now_ns = clock_ns();
        let result = match self.machine.next(now_ns) {
            Step::ReadLatest => self.try_storage(LeaseStore::latest, StepResult::Read),
            Step::Read(epoch) => self.try_storage(|store| store.read(epoch), StepResult::Read),
            Step::Claim(record) => {
                self.try_storage(|store| store.claim(&record), StepResult::Claimed)
            }
            Step::Renew(record) => {
                self.try_storage(|store| store.renew(&record), |()| StepResult::Renewed)
            }
            Step::Fence(epoch, heads) => {
                self.fence = Some(FenceRun::start(&self.fence_program, epoch, heads));
                StepResult::FenceStarted
            }
            Step::SleepUntil(at_ns) => {
                thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns)).min(SLICE));
                StepResult::Slept
            }
            Step::End(loss) => return Err(loss),
        };
        self.machine.done(result, clock_ns());
        Ok(())
    }

    fn poll_fence(&mut self) {
        let Some(run) = &mut self.fence else { return };
        if let Some(is_success) = run.poll() {
            let epoch = run.epoch;
            self.fence = None;
            self.machine.fenced(epoch, is_success, clock_ns());
        }
    }

    fn try_storage<T>(
        &mut self,
        operation: impl FnOnce(&LeaseStore) -> io::Result<T>,
        result: impl FnOnce(T) -> StepResult,
    ) -> StepResult {
        match operation(&self.store) {
            Ok(value) => result(value),
            Err(error) => {
                if let Some(left_out) =
                    self.lines.admit(std::net::Ipv4Addr::UNSPECIFIED.into(), clock_ns() / 1_000_000)
                {
                    tracing::error!(%error, left_out, "the lease of the shared state directory cannot be read or renewed");
                }
                StepResult::Failed
            }
        }
    }
}

/// For the fencing program and for a request to stop.
const SLICE: Duration = Duration::from_millis(25);
