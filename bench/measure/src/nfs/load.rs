use std::time::{Duration, Instant};

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_nfs4_client::{CallBuilder, Error as CallError, ReplyBody};
use vouch_xdr::Writer;

use crate::Latency;

pub(crate) trait CallSource {
    /// False if the lane has no call.
    fn next(&mut self, lane: usize) -> bool;

    fn write(&mut self, lane: usize, call: &mut CallBuilder, w: &mut Writer);

    fn on_reply(&mut self, lane: usize, body: ReplyBody<'_>) -> Result<CallResult, CallError>;

    fn on_refusal(&mut self, lane: usize, status: Status);

    fn retry_delayed(&mut self) -> bool {
        false
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallResult {
    pub bytes: u64,
    pub operations: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    Closed,
    /// Calls a second, also when the server is slower (open loop). Latency counts from the due
    /// time, so that a stalled server cannot hide the delay of waiting calls.
    Open(f64),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub bytes: u64,
    pub operations: u64,
    pub errors: u64,
    pub unanswered: u64,
    pub refusal: Option<(Op, Status)>,
    pub unsent: u64,
    pub seconds: f64,
    /// CPU seconds of this thread.
    pub thread_s: f64,
    pub latency: Latency,
    pub depth: Option<u32>,
    pub lanes: u32,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
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
    fn sum_keeps_last_refusal() {
        let mut sum = Tally { refusal: Some((Op::WRITE, Status::DELAY)), ..Tally::default() };
        sum.add(&Tally::default());
        assert_eq!(sum.refusal, Some((Op::WRITE, Status::DELAY)));
        sum.add(&Tally { refusal: Some((Op::WRITE, Status::NOSPC)), ..Tally::default() });
        assert_eq!(sum.refusal, Some((Op::WRITE, Status::NOSPC)));
    }
}
