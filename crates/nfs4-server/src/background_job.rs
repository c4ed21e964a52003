//! Background work that outlives its compound: asynchronous COPY, slow closes.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Effect, Now, Server};

/// A job for a thread that may block.
pub struct Job {
    address: IpAddr,
    steps: Box<dyn Steps>,
}

pub enum JobProgress {
    More,
    /// The observer knows the result, the client does not. Call again once the record may be seen
    /// by others.
    Ended,
    Done(Vec<Effect>),
}

pub(crate) trait Steps: Send {
    fn step(&mut self, server: &Server, now: Now) -> JobProgress;

    /// Ends a job whose step has panicked.
    fn failed(&mut self, _server: &Server, _now: Now) -> JobProgress {
        JobProgress::Done(Vec::new())
    }
}

impl Job {
    pub(crate) fn new(address: IpAddr, steps: impl Steps + 'static) -> Self {
        Job { address, steps: Box::new(steps) }
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Does a bounded part of the work. May block. A panic ends the job.
    pub fn step(&mut self, server: &Server, now: Now) -> JobProgress {
        // Locks are released during unwinding, and `failed` completes what was half done.
        let stepped = catch_unwind(AssertUnwindSafe(|| self.steps.step(server, now)));
        stepped.unwrap_or_else(|_| self.steps.failed(server, now))
    }
}
