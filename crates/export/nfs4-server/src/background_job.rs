//! Background work that outlives its COMPOUND: asynchronous COPY, slow closes.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vouch_vfs::SystemId;

use crate::{Effect, Now, Server};

pub struct Job {
    address: IpAddr,
    remote: Option<SystemId>,
    steps: Box<dyn Steps>,
}

pub enum JobProgress {
    More,
    /// Only the observer knows the result so far. Call again once others may see the record, which
    /// must be stored if `awaits_observer`.
    Ended {
        awaits_observer: bool,
    },
    Done(Vec<Effect>),
}

pub(crate) trait Steps: Send {
    fn step(&mut self, server: &Server, now: Now) -> JobProgress;

    fn failed(&mut self, _server: &Server, _now: Now) -> JobProgress {
        JobProgress::Done(Vec::new())
    }
}

impl Job {
    pub(crate) fn new(
        address: IpAddr,
        remote: Option<SystemId>,
        steps: impl Steps + 'static,
    ) -> Self {
        Job { address, remote, steps: Box::new(steps) }
    }

    /// The remote file system for which a step may wait.
    pub fn remote_system(&self) -> Option<SystemId> {
        self.remote
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// A bounded part of the work. May block. A panic ends the job.
    pub fn step(&mut self, server: &Server, now: Now) -> JobProgress {
        let stepped = catch_unwind(AssertUnwindSafe(|| self.steps.step(server, now)));
        stepped.unwrap_or_else(|_| self.steps.failed(server, now))
    }
}
