//! The session owns the connections and the waiting.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use vouch_nfs4::Status;
use vouch_nfs4_client::{Error as CallError, Pipeline, ReplyBody, Submitter};

use super::load::{CallSource, Clock, Pace, Tally};
use super::session::OTHER_DATA;

#[derive(Debug, Clone, Copy)]
struct Lane {
    due: Instant,
    sent: Instant,
    in_flight: bool,
}

pub(super) struct LoadRun<'a> {
    source: &'a mut dyn CallSource,
    clock: Clock,
    end: Option<Instant>,
    lanes: Vec<Lane>,
    idle: VecDeque<usize>,
    sending: bool,
    exhausted: bool,
    last_sent: Instant,
    last_reply: Instant,
    waiting_since: Instant,
    longest: Duration,
    tally: Tally,
    error: Option<CallError>,
}

fn is_lost_call(error: &CallError) -> bool {
    match error {
        CallError::Unreadable(_) | CallError::NotAccepted(_) | CallError::Protection(_) => true,
        CallError::Mismatch(text) => *text != OTHER_DATA,
        _ => false,
    }
}

impl<'a> LoadRun<'a> {
    pub(super) fn new(
        source: &'a mut dyn CallSource,
        depth: usize,
        pace: Pace,
        limit: Option<Duration>,
    ) -> Self {
        let start = Instant::now();
        Self {
            source,
            clock: Clock { pace, start, made: 0 },
            end: limit.map(|limit| start + limit),
            lanes: vec![Lane { due: start, sent: start, in_flight: false }; depth],
            idle: (0..depth).collect(),
            sending: true,
            exhausted: false,
            last_sent: start,
            last_reply: start,
            waiting_since: start,
            longest: Duration::ZERO,
            tally: Tally { lanes: depth as u32, ..Tally::default() },
            error: None,
        }
    }

    fn is_closed(&self) -> bool {
        self.clock.pace == Pace::Closed
    }

    pub(super) fn send_due(&mut self, pipeline: &mut Pipeline, stopped: bool) {
        let (now, closed) = (Instant::now(), self.is_closed());
        let over = self.end.is_some_and(|end| now >= end);
        // The thread may wake late for a call that was due before the end.
        self.sending &= !stopped && self.error.is_none() && !(closed && over);
        while self.sending
            && self.clock.next() <= now
            && (closed || self.end.is_none_or(|end| self.clock.next() < end))
        {
            let Some(lane) = self.idle.pop_front() else { break };
            let due = if closed { Instant::now() } else { self.clock.next() };
            if pipeline.submitter().in_flight() == 0 {
                self.waiting_since = now;
            }
            match self.send(pipeline, lane) {
                Ok(Sent::Yes) => {
                    self.lanes[lane] =
                        Lane { due, sent: if closed { due } else { now }, in_flight: true };
                    self.last_sent = now;
                    self.clock.made += 1;
                }
                Ok(Sent::NoCall) => {}
                Ok(Sent::NoSlot) => {
                    self.tally.depth = Some(pipeline.submitter().in_flight() as u32);
                    self.idle.clear();
                }
                Err(error) => {
                    self.error = Some(error);
                    self.sending = false;
                }
            }
        }
        self.sending &= !over;
    }

    fn send(&mut self, pipeline: &mut Pipeline, lane: usize) -> Result<Sent, CallError> {
        if pipeline.submitter().available() == 0 {
            return Ok(Sent::NoSlot);
        }
        if !self.source.next(lane) {
            self.exhausted = true;
            return Ok(Sent::NoCall);
        }
        match pipeline
            .submitter()
            .submit(lane as u64, |call, w| self.source.write(lane, call, w))?
        {
            true => Ok(Sent::Yes),
            false => Err(CallError::Mismatch("a free slot is in use")),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        !self.sending || self.is_closed() || self.idle.is_empty()
    }

    pub(super) fn wait(&self, longest: Duration) -> Duration {
        if !self.sending || self.is_closed() || self.idle.is_empty() {
            return longest;
        }
        // Calls due soon leave together. Otherwise each call would cost a wake-up.
        let next = self.clock.next().max(self.last_sent + BATCH_WINDOW);
        let next = self.end.map_or(next, |end| end.min(next));
        longest.min(next.saturating_duration_since(Instant::now()))
    }

    pub(super) fn on_reply(
        &mut self,
        submitter: &mut Submitter,
        lane: usize,
        body: Result<ReplyBody<'_>, CallError>,
    ) {
        let now = Instant::now();
        (self.last_reply, self.waiting_since) = (now, now);
        self.lanes[lane].in_flight = false;
        self.longest = self.longest.max(now - self.lanes[lane].sent);
        match body.and_then(|body| self.source.on_reply(lane, body)) {
            Ok(result) => {
                self.tally.latency.record((now - self.lanes[lane].due).as_nanos() as u64);
                self.tally.bytes += result.bytes;
                self.tally.operations += result.operations;
            }
            Err(CallError::Refused { op, status }) => {
                self.tally.errors += 1;
                self.tally.refusal = Some((op, status));
                self.source.on_refusal(lane, status);
            }
            // The reply is unusable, so the call is lost. The run goes on.
            Err(error) if is_lost_call(&error) => {
                self.tally.latency.record((now - self.lanes[lane].due).as_nanos() as u64);
                self.count_unanswered(1);
                self.source.on_refusal(lane, Status::SERVERFAULT);
            }
            Err(error) => self.error = Some(error),
        }
        let over = !self.sending || self.error.is_some() || self.end.is_some_and(|end| now >= end);
        if !self.is_closed() || over {
            self.idle.push_back(lane);
            return;
        }
        if !self.source.next(lane) {
            self.exhausted = true;
            self.idle.push_back(lane);
            return;
        }
        (self.lanes[lane].due, self.lanes[lane].sent) = (now, now);
        match submitter.submit(lane as u64, |call, w| self.source.write(lane, call, w)) {
            Ok(true) => self.lanes[lane].in_flight = true,
            Ok(false) => self.idle.push_back(lane),
            Err(error) => self.error = Some(error),
        }
    }

    /// A server that drops a call (RFC 2203 §5.3.3.1) must not cost the whole of `patience` each
    /// time.
    pub(super) fn silence_max(&self, patience: Duration) -> Duration {
        if self.sending && !self.exhausted || self.tally.operations == 0 {
            return patience;
        }
        let overtaken = OVERTAKEN.max(3 * self.longest);
        let is_overtaken = |lane: &Lane| self.last_reply - lane.sent > overtaken;
        match self.lanes.iter().filter(|lane| lane.in_flight).all(is_overtaken) {
            true => overtaken.max(LOST_AFTER),
            false => (20 * self.longest).max(LAST_LOST_AFTER),
        }
        .min(patience)
    }

    pub(super) fn silence(&self) -> Duration {
        self.waiting_since.elapsed()
    }

    /// A server may drop calls outside its sequence window (RFC 2203 §5.3.3.1).
    pub(super) fn give_up(&mut self, in_flight: usize) {
        let now = Instant::now();
        for lane in self.lanes.iter().filter(|lane| lane.in_flight) {
            self.tally.latency.record((now - lane.due).as_nanos() as u64);
        }
        self.count_unanswered(in_flight);
    }

    pub(super) fn fail(&mut self, in_flight: usize, error: CallError) {
        self.count_unanswered(in_flight);
        self.error.get_or_insert(error);
    }

    fn count_unanswered(&mut self, in_flight: usize) {
        self.tally.unanswered += in_flight as u64;
        self.tally.errors += in_flight as u64;
    }

    pub(super) fn finish(mut self, stopped: bool) -> (Tally, Option<CallError>) {
        if !self.is_closed() && !stopped {
            let end = self.end.unwrap_or(self.last_reply);
            while self.clock.next() < end {
                self.tally.latency.record((end - self.clock.next()).as_nanos() as u64);
                self.tally.unsent += 1;
                self.clock.made += 1;
            }
        }
        self.tally.seconds =
            (counted_until(self.last_reply, self.end) - self.clock.start).as_secs_f64().max(1e-9);
        (self.tally, self.error)
    }
}

enum Sent {
    Yes,
    NoCall,
    NoSlot,
}

fn counted_until(last_reply: Instant, end: Option<Instant>) -> Instant {
    end.map_or(last_reply, |end| end.max(last_reply))
}

/// The wait is part of the latency.
const BATCH_WINDOW: Duration = Duration::from_micros(20);
/// A call is lost after waiting this much longer than any other.
const OVERTAKEN: Duration = Duration::from_millis(50);
/// Silence after the load, if later calls overtook all calls in flight.
const LOST_AFTER: Duration = Duration::from_millis(300);
const LAST_LOST_AFTER: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_server_does_not_shorten_measured_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(counted_until(at(100), Some(at(1000))), at(1000));
        assert_eq!(counted_until(at(1010), Some(at(1000))), at(1010));
        assert_eq!(counted_until(at(100), None), at(100));
    }
}
