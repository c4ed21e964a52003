//! One NFSv4.1 session, driven by one thread, with a closed or an open loop. Calls without an
//! answer count as errors, and the run goes on.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4::{Status, Verifier};
use vouch_nfs4_client::{Error as CallError, Identity, OpenCall, Pipeline, Plain, Protection, ReplyBody, establish};
use vouch_oncrpc::AuthSys;
use vouch_xdr::Writer;

use super::load::{CallSource, Clock, Pace, Tally};
use crate::target::{NfsTarget, Sec};
use crate::{Error, StopFlag, cpu};

/// Options of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Server and directory.
    pub target: NfsTarget,
    /// Security flavour.
    pub sec: Sec,
    /// Kerberos service name, if it is not the target's default.
    pub service: Option<String>,
    /// TCP connections.
    pub connections: usize,
    /// Session slots to request.
    pub slots: usize,
}

/// A session with a server.
pub struct Session {
    pipeline: Pipeline,
    options: SessionOptions,
    /// Calls are in flight that will have no answer. The next load connects again.
    stalled: bool,
    /// Number of reconnects. State of an earlier client is lost after each.
    renewals: u64,
    /// Time of the last call.
    used: Instant,
    /// How long the server may be silent.
    pub(super) patience: Duration,
    /// After this time without a call, the session is checked before it is used.
    pub(super) idle: Duration,
}

impl Session {
    /// Connects under a unique client owner.
    pub fn connect(options: SessionOptions, stop: &StopFlag) -> Result<Self, Error> {
        let pipeline = connect_unless_stopped(&options, stop)?;
        Ok(Self { pipeline, options, stalled: false, renewals: 0, used: Instant::now(), patience: PATIENCE, idle: IDLE })
    }

    /// Encryption type, and the server's implementation id.
    pub(super) fn found(&self) -> Vec<String> {
        let server = self.pipeline.server().map(|server| format!("server implementation: {server}"));
        self.pipeline.enctype().map(str::to_owned).into_iter().chain(server).collect()
    }

    /// The target, as text.
    pub(super) fn target(&self) -> String {
        self.options.target.to_string()
    }

    /// Makes one call. NFS4ERR_GRACE and NFS4ERR_DELAY are retried.
    pub fn one<T>(
        &mut self,
        what: &str,
        stop: &StopFlag,
        write: impl FnMut(&mut OpenCall, &mut Writer),
        read: impl FnMut(ReplyBody<'_>) -> Result<T, CallError>,
    ) -> Result<T, Error> {
        self.renew(stop)?;
        self.ask(what, stop, write, read)
    }

    fn ask<T>(
        &mut self,
        what: &str,
        stop: &StopFlag,
        mut write: impl FnMut(&mut OpenCall, &mut Writer),
        mut read: impl FnMut(ReplyBody<'_>) -> Result<T, CallError>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        self.used = start;
        loop {
            let sent = Instant::now();
            let submitted = self.pipeline.submitter().submit(0, &mut write).map_err(Error::nfs(what))?;
            if !submitted {
                return Err(Error::Unreachable(format!("{what}: no slot is free")));
            }
            let mut outcome = None;
            while outcome.is_none() {
                self.pipeline.turn(Some(TICK), |_, _, body| outcome = Some(body.and_then(&mut read))).map_err(Error::nfs(what))?;
                if stop.must_hurry() && sent.elapsed() > SILENCE || sent.elapsed() > 4 * PATIENCE {
                    self.stalled = true;
                    return Err(Error::Unreachable(format!("{what}: the server does not answer")));
                }
            }
            match outcome {
                Some(Err(CallError::Refused { status: Status::GRACE | Status::DELAY, .. })) if start.elapsed() < GRACE => {
                    if stop.is_set() {
                        return Err(Error::Interrupted);
                    }
                    std::thread::sleep(PAUSE);
                }
                Some(outcome) => return outcome.map_err(Error::nfs(what)),
                None => {}
            }
        }
    }

    /// Runs a load until its calls or its time end, or a stop is requested.
    pub fn run(
        &mut self,
        work: &mut dyn CallSource,
        depth: usize,
        pace: Pace,
        limit: Option<Duration>,
        stop: &StopFlag,
    ) -> Result<Tally, Error> {
        self.renew(stop)?;
        let mut tally = Tally { lanes: depth as u32, ..Tally::default() };
        let start = Instant::now();
        let thread = cpu::thread_s();
        let end = limit.map(|limit| start + limit);
        let mut clock = Clock { pace, start, made: 0 };
        // Idle lanes, and the due time of each lane's call.
        let mut idle: VecDeque<usize> = (0..depth).collect();
        let mut due = vec![start; depth];
        let mut sent = due.clone();
        let mut flying = vec![false; depth];
        let mut longest = Duration::ZERO;
        let mut fault = None;
        let mut last = start;
        // Start of the current wait for a reply.
        let mut waited = start;
        let mut asking = true;
        let closed = pace == Pace::Closed;
        // The default timer slack would add to the measured latency.
        let _slack = (!closed).then(LowTimerSlack::set);
        let mut left = start;
        loop {
            let now = Instant::now();
            let over = end.is_some_and(|end| now >= end);
            // A call that was due before the end is also sent when the thread wakes late.
            asking &= !stop.is_set() && fault.is_none() && !(closed && over);
            while asking && clock.next() <= now && (closed || end.is_none_or(|end| clock.next() < end)) {
                let Some(lane) = idle.pop_front() else { break };
                let at = if closed { Instant::now() } else { clock.next() };
                if self.pipeline.submitter().in_flight() == 0 {
                    waited = now;
                }
                match submit(&mut self.pipeline, work, lane) {
                    Ok(Submitted::Yes) => {
                        (due[lane], sent[lane], flying[lane]) = (at, if closed { at } else { now }, true);
                        left = now;
                        clock.made += 1;
                    }
                    Ok(Submitted::Nothing) => {}
                    Ok(Submitted::NoSlot) => {
                        // The server grants fewer slots, so there are fewer lanes.
                        let lanes = self.pipeline.submitter().in_flight();
                        tally.depth = Some(lanes as u32);
                        idle.clear();
                    }
                    Err(error) => {
                        fault = Some(error);
                        asking = false;
                    }
                }
            }
            asking &= !over;
            // An open loop without calls in flight waits for the next due time.
            if self.pipeline.submitter().in_flight() == 0 && (!asking || closed || idle.is_empty()) {
                break;
            }
            let mut wait = TICK;
            if asking && !closed && !idle.is_empty() {
                // Calls that are due soon leave together. Otherwise each call would cost a wake-up.
                let next = clock.next().max(left + BATCH_WINDOW);
                let next = end.map_or(next, |end| end.min(next));
                wait = wait.min(next.saturating_duration_since(Instant::now()));
            }
            let turn = self.pipeline.turn(Some(wait), |submitter, token, body| {
                let lane = token as usize;
                let now = Instant::now();
                (last, waited) = (now, now);
                flying[lane] = false;
                longest = longest.max(now - sent[lane]);
                match body.and_then(|body| work.reply(lane, body)) {
                    Ok(gain) => {
                        tally.latency.record((now - due[lane]).as_nanos() as u64);
                        tally.bytes += gain.bytes;
                        tally.operations += gain.operations;
                    }
                    Err(CallError::Refused { op, status }) => {
                        tally.errors += 1;
                        tally.refusal = Some((op, status));
                        work.refused(lane, status);
                    }
                    Err(error) => fault = Some(error),
                }
                let over = !asking || fault.is_some() || end.is_some_and(|end| now >= end);
                if closed && !over && work.next(lane) {
                    (due[lane], sent[lane]) = (now, now);
                    match submitter.submit(token, |call, w| work.write(lane, call, w)) {
                        Ok(true) => flying[lane] = true,
                        Ok(false) => idle.push_back(lane),
                        Err(error) => fault = Some(error),
                    }
                } else {
                    idle.push_back(lane);
                }
            });
            // Calls that many later calls have overtaken are lost.
            let lost = || (0..depth).filter(|lane| !idle.contains(lane)).all(|lane| last - sent[lane] > OVERTAKEN.max(3 * longest));
            let patience = if stop.must_hurry() || !asking && lost() { SILENCE } else { self.patience };
            match turn {
                Ok(0) if waited.elapsed() > patience && self.pipeline.submitter().in_flight() > 0 => {
                    // A server may drop requests outside its sequence window (RFC 2203, section
                    // 5.3.3.1). The time they waited counts as latency.
                    let now = Instant::now();
                    (0..depth).filter(|lane| flying[*lane]).for_each(|lane| tally.latency.record((now - due[lane]).as_nanos() as u64));
                    tally.unanswered += self.pipeline.submitter().in_flight() as u64;
                    tally.errors += self.pipeline.submitter().in_flight() as u64;
                    self.stalled = true;
                    break;
                }
                Ok(_) => {}
                Err(error) => {
                    tally.unanswered += self.pipeline.submitter().in_flight() as u64;
                    tally.errors += self.pipeline.submitter().in_flight() as u64;
                    self.stalled = true;
                    fault.get_or_insert(error);
                    break;
                }
            }
        }
        if !closed && !stop.is_set() {
            // Calls that were never sent have waited until the end.
            let end = end.unwrap_or(last);
            while clock.next() < end {
                tally.latency.record((end - clock.next()).as_nanos() as u64);
                tally.unsent += 1;
                clock.made += 1;
            }
        }
        tally.seconds = (counted_until(last, end) - start).as_secs_f64().max(1e-9);
        tally.thread_s = cpu::thread_s() - thread;
        self.used = Instant::now();
        match fault {
            None => Ok(tally),
            Some(CallError::Mismatch(OTHER_DATA)) => Err(Error::Corrupt(self.options.target.to_string())),
            Some(error) => Err(Error::nfs(self.options.target.to_string())(error)),
        }
    }

    /// Runs a load until all its calls are done. Calls that the server delayed are retried after a
    /// pause, which counts.
    pub fn complete(&mut self, work: &mut dyn CallSource, depth: usize, stop: &StopFlag) -> Result<Tally, Error> {
        let (start, mut sum) = (Instant::now(), Tally::default());
        loop {
            sum.add(&self.run(work, depth, Pace::Closed, None, stop)?);
            if start.elapsed() > DELAYED_MAX || stop.is_set() || !work.again() {
                return Ok(sum);
            }
            std::thread::sleep(PAUSE);
            sum.seconds += PAUSE.as_secs_f64();
        }
    }

    /// Number of reconnects. Reconnects first if the last load left calls without an answer. Files
    /// that were open before have to be opened again.
    pub(super) fn renewals(&mut self, stop: &StopFlag) -> Result<u64, Error> {
        self.renew(stop)?;
        Ok(self.renewals)
    }

    /// Number of reconnects.
    pub(super) const fn has_renewed(&self) -> u64 {
        self.renewals
    }

    fn renew(&mut self, stop: &StopFlag) -> Result<(), Error> {
        // The lease may have expired while other subjects were measured (RFC 8881, section
        // 8.4.2.3).
        if !self.stalled && self.used.elapsed() > self.idle {
            self.stalled = self.ask("an idle session", stop, |_, _| {}, |_| Ok(())).is_err();
        }
        if self.stalled {
            self.pipeline = connect_unless_stopped(&self.options, stop)?;
            self.stalled = false;
            self.renewals += 1;
        }
        Ok(())
    }
}

/// Error of a call source when data differs.
pub(super) const OTHER_DATA: &str = "other data than the file's";

/// End of the measured time: at least the time limit, also if the last reply came earlier.
fn counted_until(last: Instant, end: Option<Instant>) -> Instant {
    end.map_or(last, |end| end.max(last))
}

enum Submitted {
    Yes,
    /// The lane has no more calls.
    Nothing,
    NoSlot,
}

fn submit(pipeline: &mut Pipeline, work: &mut dyn CallSource, lane: usize) -> Result<Submitted, CallError> {
    if pipeline.submitter().idle() == 0 {
        return Ok(Submitted::NoSlot);
    }
    if !work.next(lane) {
        return Ok(Submitted::Nothing);
    }
    match pipeline.submitter().submit(lane as u64, |call, w| work.write(lane, call, w))? {
        true => Ok(Submitted::Yes),
        false => Err(CallError::Mismatch("a free slot is in use")),
    }
}

/// Connects in another thread, so that a stop request does not wait for a silent server.
fn connect_unless_stopped(options: &SessionOptions, stop: &StopFlag) -> Result<Pipeline, Error> {
    let ((sender, made), theirs) = (mpsc::channel(), options.clone());
    std::thread::spawn(move || {
        // Sending fails after the receiver gave up.
        let _ = sender.send(pipeline(&theirs));
    });
    let mut asked = None;
    loop {
        match made.recv_timeout(TICK) {
            Ok(pipeline) => return pipeline,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Error::Program("a thread panicked".into())),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if stop.must_hurry() && asked.get_or_insert_with(Instant::now).elapsed() > SILENCE {
                    return Err(Error::Unreachable(format!("{}: the server does not answer", options.target)));
                }
            }
        }
    }
}

fn pipeline(options: &SessionOptions) -> Result<Pipeline, Error> {
    let address = options.target.address()?;
    let what = options.target.to_string();
    let protection: Box<dyn Protection> = match options.sec.service() {
        None => Box::new(Plain::sys(&caller())),
        Some(service) => {
            let name = options.service.clone().unwrap_or_else(|| options.target.service());
            let initiator =
                MitInitiator::new(&name, &ClientSource::default()).map_err(|error| Error::Refused(format!("{what}: {error}")))?;
            let established = establish(address, initiator, service).map_err(|error| match error {
                vouch_nfs4_client::GssError::Io(error) => Error::Unreachable(format!("{what}: {error}")),
                error => Error::Refused(format!("{what}: sec={}: {error}", options.sec)),
            });
            Box::new(established?)
        }
    };
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::Input(format!("randomness: {error}")))?;
    let (name, life) = random.split_at(8);
    let mut owner = format!("vouch bench {} ", options.sec).into_bytes();
    owner.extend(data_encoding::HEXLOWER.encode(name).bytes());
    let verifier = Verifier(life.try_into().expect("half of sixteen"));
    let identity = Identity { slots: options.slots.max(8) as u32, ..Identity::new(owner, verifier) };
    Pipeline::connect(address, 1, options.connections, &identity, protection).map_err(Error::nfs(what))
}

/// Credentials of this process.
fn caller() -> AuthSys {
    let gids = rustix::process::getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).take(16).collect();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    AuthSys { stamp: 0, machine_name: b"vouch-bench".to_vec(), uid, gid, gids }
}

/// Minimal timer slack for this thread while it lives.
struct LowTimerSlack;

impl LowTimerSlack {
    fn set() -> Self {
        // Without it, the thread wakes later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Self
    }
}

impl Drop for LowTimerSlack {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(None);
    }
}

/// Calls due within this time are sent together. The wait is part of their latency.
const BATCH_WINDOW: Duration = Duration::from_micros(20);
/// Interval of checks for a stop request.
const TICK: Duration = Duration::from_millis(100);
/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(15);
/// A call is lost after waiting this much longer than any other.
const OVERTAKEN: Duration = Duration::from_millis(50);
/// Shorter than any lease.
const IDLE: Duration = Duration::from_secs(3);
/// Longest grace period to wait for: twice the usual lease.
const GRACE: Duration = Duration::from_secs(180);
/// How long the server may delay the calls of a load that has to complete.
const DELAYED_MAX: Duration = Duration::from_secs(30);
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server may be silent after a stop request.
const SILENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_server_does_not_shorten_measured_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // All lanes are lost early, one lane is late, and a load has no limit.
        assert_eq!(counted_until(at(100), Some(at(1000))), at(1000));
        assert_eq!(counted_until(at(1010), Some(at(1000))), at(1010));
        assert_eq!(counted_until(at(100), None), at(100));
    }
}
