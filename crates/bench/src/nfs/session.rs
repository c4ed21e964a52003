//! One session, driven by one thread: calls in flight on its connections, closed or open loop. A
//! server that leaves calls without an answer costs errors, not the run.

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

/// Who measures what, and how.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Where.
    pub target: NfsTarget,
    /// How calls are protected.
    pub sec: Sec,
    /// The service's name for Kerberos, if it isn't the target's own.
    pub service: Option<String>,
    /// Connections of a session.
    pub connections: usize,
    /// Slots to ask for.
    pub slots: usize,
}

/// A client of a server.
pub struct Session {
    pipeline: Pipeline,
    options: SessionOptions,
    /// Calls are outstanding that will have no answer: whoever goes on connects anew.
    stalled: bool,
    /// How often it has connected anew: what was open before is another client's.
    renewals: u64,
    /// When the last call was made.
    used: Instant,
    /// How long the server may be silent.
    pub(super) patience: Duration,
    /// After how long without a call it is asked first whether it is still there.
    pub(super) idle: Duration,
}

impl Session {
    /// Introduces itself under a name of its own.
    pub fn connect(options: SessionOptions, stop: &StopFlag) -> Result<Self, Error> {
        let pipeline = pipeline_unless(&options, stop)?;
        Ok(Self { pipeline, options, stalled: false, renewals: 0, used: Instant::now(), patience: PATIENCE, idle: IDLE })
    }

    /// What it has found of the server: encryption type, and what it says it is.
    pub(super) fn found(&self) -> Vec<String> {
        let server = self.pipeline.server().map(|server| format!("the server says it is {server}"));
        self.pipeline.enctype().map(str::to_owned).into_iter().chain(server).collect()
    }

    /// As it was written.
    pub(super) fn target(&self) -> String {
        self.options.target.to_string()
    }

    /// One call and its reply. A server in its grace period, or that asks for patience, is waited
    /// for.
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

    /// Runs a load until it has no more to ask, or the time is over, or somebody asks to stop.
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
        // Lanes that could make a call, and when each call that is under way was due.
        let mut idle: VecDeque<usize> = (0..depth).collect();
        let mut due = vec![start; depth];
        let mut sent = due.clone();
        let mut flying = vec![false; depth];
        let mut longest = Duration::ZERO;
        let mut fault = None;
        let mut last = start;
        // When the server began to be waited for, or was last heard: while nothing is due it owes nothing.
        let mut waited = start;
        let mut asking = true;
        let closed = pace == Pace::Closed;
        // Half of the system's slack would be told as the server's latency.
        let _woken = (!closed).then(Woken::soon);
        let mut left = start;
        loop {
            let now = Instant::now();
            let over = end.is_some_and(|end| now >= end);
            // What was due before the end is sent also by who woke up late for it.
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
                        // The server gives fewer slots: fewer lanes.
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
            // A server that has answered all before the next call is due is waited with, not done: only a work
            // without more to ask has no lane.
            if self.pipeline.submitter().in_flight() == 0 && (!asking || closed || idle.is_empty()) {
                break;
            }
            let mut wait = TICK;
            if asking && !closed && !idle.is_empty() {
                // What is due soon after this leaves with it, or each call would cost as much as the server has for
                // one.
                let next = clock.next().max(left + TOGETHER);
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
            // Calls that many later ones have overtaken are lost: their answers are not worth the wait that a
            // slow server is.
            let lost = || (0..depth).filter(|lane| !idle.contains(lane)).all(|lane| last - sent[lane] > OVERTAKEN.max(3 * longest));
            let patience = if stop.must_hurry() || !asking && lost() { SILENCE } else { self.patience };
            match turn {
                Ok(0) if waited.elapsed() > patience && self.pipeline.submitter().in_flight() > 0 => {
                    // A server that drops requests (RFC 2203 allows it outside its window) must not end the run. Nor is
                    // it fast by that: those calls have waited until now at least.
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
            // What was due and never sent has waited until now at least.
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

    /// Runs a load to its end, which has one. What the server puts off is asked again after a
    /// pause, which counts.
    pub fn complete(&mut self, work: &mut dyn CallSource, depth: usize, stop: &StopFlag) -> Result<Tally, Error> {
        let (start, mut sum) = (Instant::now(), Tally::default());
        loop {
            sum.add(&self.run(work, depth, Pace::Closed, None, stop)?);
            if start.elapsed() > PUT_OFF || stop.is_set() || !work.again() {
                return Ok(sum);
            }
            std::thread::sleep(PAUSE);
            sum.seconds += PAUSE.as_secs_f64();
        }
    }

    /// How often it has connected anew, after doing so if the last load ended with calls that
    /// nobody answered. What was open before that has to be opened again.
    pub(super) fn renewals(&mut self, stop: &StopFlag) -> Result<u64, Error> {
        self.renew(stop)?;
        Ok(self.renewals)
    }

    /// How often it has connected anew.
    pub(super) const fn has_renewed(&self) -> u64 {
        self.renewals
    }

    fn renew(&mut self, stop: &StopFlag) -> Result<(), Error> {
        // While others were measured a lease may have run out; a server need not keep who holds nothing
        // (RFC 8881, section 8.4.2.3).
        if !self.stalled && self.used.elapsed() > self.idle {
            self.stalled = self.ask("an idle session", stop, |_, _| {}, |_| Ok(())).is_err();
        }
        if self.stalled {
            self.pipeline = pipeline_unless(&self.options, stop)?;
            self.stalled = false;
            self.renewals += 1;
        }
        Ok(())
    }
}

/// What a work says of data that is not the file's.
pub(super) const OTHER_DATA: &str = "other data than the file's";

/// The end of the time that the clock counts: a load that is to last so long has lasted so long,
/// also if the last reply came early because no other was given.
fn counted_until(last: Instant, end: Option<Instant>) -> Instant {
    end.map_or(last, |end| end.max(last))
}

enum Submitted {
    Yes,
    /// The work has no more to ask of this lane.
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
        false => Err(CallError::Mismatch("a slot that was free is not")),
    }
}

/// A server that is silent is waited for by another thread, so that who wants to stop does not wait
/// for it too.
fn pipeline_unless(options: &SessionOptions, stop: &StopFlag) -> Result<Pipeline, Error> {
    let ((sender, made), theirs) = (mpsc::channel(), options.clone());
    std::thread::spawn(move || {
        // Who has stopped waiting needs none.
        let _ = sender.send(pipeline(&theirs));
    });
    let mut asked = None;
    loop {
        match made.recv_timeout(TICK) {
            Ok(pipeline) => return pipeline,
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(Error::Program("a thread failed".into())),
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

/// Who runs this.
fn caller() -> AuthSys {
    let gids = rustix::process::getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).take(16).collect();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    AuthSys { stamp: 0, machine_name: b"vouch-bench".to_vec(), uid, gid, gids }
}

/// While it lives this thread is woken as soon as it is to be; programs that it starts later are
/// woken as others are.
struct Woken;

impl Woken {
    fn soon() -> Self {
        // Who can't have less slack is late by it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Self
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(None);
    }
}

/// Calls that are due within this of one another are sent together: they wait for it, and that is
/// in their latency.
const TOGETHER: Duration = Duration::from_micros(20);
/// How often somebody is looked for who wants to stop.
const TICK: Duration = Duration::from_millis(100);
/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(15);
/// A call that waits for so much longer than any other did is lost.
const OVERTAKEN: Duration = Duration::from_millis(50);
/// Shorter than any lease.
const IDLE: Duration = Duration::from_secs(3);
/// The longest grace period that is waited for: twice the usual lease.
const GRACE: Duration = Duration::from_secs(180);
/// How long a server may put off a load that has to be done to its end.
const PUT_OFF: Duration = Duration::from_secs(30);
/// Before what was put off is asked again.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server may be silent when somebody waits for the end.
const SILENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stops_answering_is_not_faster_by_that() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // All lanes are lost after a tenth of a second of one; one lane is late; a load without a limit.
        assert_eq!(counted_until(at(100), Some(at(1000))), at(1000));
        assert_eq!(counted_until(at(1010), Some(at(1000))), at(1010));
        assert_eq!(counted_until(at(100), None), at(100));
    }
}
