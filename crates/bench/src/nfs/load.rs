//! What a session is asked to do, at what pace, and what came of it.

use std::time::{Duration, Instant};

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_nfs4_client::{Error as CallError, OpenCall, ReplyBody};
use vouch_xdr::Writer;

use crate::Latency;

/// What each lane asks next. A lane is one call in flight, and what follows from its reply.
pub trait CallSource {
    /// Whether the lane has another call to make; prepares it.
    fn next(&mut self, lane: usize) -> bool;

    /// Appends the operations of that call.
    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer);

    /// Takes the reply: bytes moved and things done by it.
    fn reply(&mut self, lane: usize, body: ReplyBody<'_>) -> Result<CallResult, CallError>;

    /// The server refused the lane's call: the lane begins with something new.
    fn refused(&mut self, lane: usize, status: Status);

    /// Asks anew for what the server has put off (NFS4ERR_DELAY); whether there is any.
    fn again(&mut self) -> bool {
        false
    }
}

/// What a reply brought.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallResult {
    /// Bytes of file data, read or written.
    pub bytes: u64,
    /// Operations in the words of the case.
    pub operations: u64,
}

/// When the next call is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// When a lane is free: the server sets the pace.
    Closed,
    /// So many a second are due, whether or not the server keeps up. A call that finds no lane
    /// waits, and its latency counts from when it was due: a server that stalls can't hide what
    /// it made others wait.
    Open(f64),
}

/// What came of a load on one session.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Bytes of file data.
    pub bytes: u64,
    /// Operations.
    pub operations: u64,
    /// Calls that were refused or not answered.
    pub errors: u64,
    /// Of those, calls that had no answer.
    pub unanswered: u64,
    /// The last call that was refused, and how.
    pub refusal: Option<(Op, Status)>,
    /// Calls that were due and found no lane to the end.
    pub unsent: u64,
    /// On the clock.
    pub seconds: f64,
    /// CPU seconds of this thread.
    pub thread_s: f64,
    /// Of calls.
    pub latency: Latency,
    /// Calls in flight, if the server allowed fewer than were wanted.
    pub depth: Option<u32>,
    /// Calls in flight that were wanted.
    pub lanes: u32,
}

impl Tally {
    /// Counts another load, which came after this one.
    pub fn add(&mut self, other: &Tally) {
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.refusal = other.refusal.or(self.refusal);
        self.unsent += other.unsent;
        self.seconds += other.seconds;
        self.thread_s += other.thread_s;
        self.latency.merge(&other.latency);
        self.depth = other.depth.or(self.depth);
        self.lanes = self.lanes.max(other.lanes);
    }
}

/// When calls are due.
pub(super) struct Clock {
    pub(super) pace: Pace,
    pub(super) start: Instant,
    pub(super) made: u64,
}

impl Clock {
    pub(super) fn next(&self) -> Instant {
        match self.pace {
            Pace::Closed => self.start,
            Pace::Open(rate) => self.start + Duration::from_secs_f64(self.made as f64 / rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_load_tells_its_own_refusal() {
        let mut sum = Tally { refusal: Some((Op::WRITE, Status::DELAY)), ..Tally::default() };
        sum.add(&Tally::default());
        assert_eq!(sum.refusal, Some((Op::WRITE, Status::DELAY)));
        sum.add(&Tally { refusal: Some((Op::WRITE, Status::NOSPC)), ..Tally::default() });
        assert_eq!(sum.refusal, Some((Op::WRITE, Status::NOSPC)));
    }
}
