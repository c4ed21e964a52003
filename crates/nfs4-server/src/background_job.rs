//! Work that outlives the compound that asked for it: asynchronous COPY.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Effect, Now, Server};

/// A piece of work to be gone on with in a thread that may sleep.
pub struct Job {
    /// Of the call that it comes from.
    address: IpAddr,
    steps: Box<dyn Steps>,
}

/// How far a job is.
pub enum JobProgress {
    /// There is more to do: call again, after other jobs had their turn.
    More,
    /// All but its end is done, and that has been told to the observer: call again when nobody
    /// minds that others learn of it.
    Ended,
    /// Done.
    Done(Vec<Effect>),
}

pub(crate) trait Steps: Send {
    fn step(&mut self, server: &Server, now: Now) -> JobProgress;

    /// A step has panicked: whatever waits for the end of the work hears of it.
    fn failed(&mut self, _server: &Server, _now: Now) -> JobProgress {
        JobProgress::Done(Vec::new())
    }
}

impl Job {
    pub(crate) fn new(address: IpAddr, steps: impl Steps + 'static) -> Self {
        Job { address, steps: Box::new(steps) }
    }

    /// Whose work it is: where the call came from that brought it about.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Does a bounded part of the work, perhaps sleeping. Work that panics, which says so, goes on
    /// no further than to its end.
    pub fn step(&mut self, server: &Server, now: Now) -> JobProgress {
        // What it leaves behind is what any thread that panics would: locks are released, and what was half
        // done is what `failed` is for.
        let stepped = catch_unwind(AssertUnwindSafe(|| self.steps.step(server, now)));
        stepped.unwrap_or_else(|_| self.steps.failed(server, now))
    }
}
