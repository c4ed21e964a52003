//! Driven by one thread. Calls without an answer count as errors, and the run goes on.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4::{Status, Verifier};
use vouch_nfs4_client::{
    CallBuilder, ClientFiles, Error as CallError, Identity, Pipeline, Plain, Protection, ReplyBody,
    TlsClient, establish_with,
};
use vouch_oncrpc::AuthSys;
use vouch_xdr::Writer;

use super::calls::Opened;
use super::context_retry::retry_if_closed;
use super::load::{CallSource, Pace, Tally};
use super::load_run::LoadRun;
use crate::target::{NfsTarget, Sec, TlsFiles};
use crate::{Error, StopFlag, cpu};

#[derive(Debug, Clone)]
pub(crate) struct SessionOptions {
    pub target: NfsTarget,
    pub sec: Sec,
    pub service: Option<String>,
    pub tls: Option<TlsFiles>,
    pub connections: usize,
    pub slots: usize,
    /// Address of this machine to connect from.
    pub source: Option<IpAddr>,
}

pub(crate) struct Session {
    pipeline: Pipeline,
    options: SessionOptions,
    /// A new instance of the same owner makes the server discard earlier opens (RFC 8881 §18.35.4).
    owner: Vec<u8>,
    /// Calls in flight will have no answer. The next load connects again.
    stalled: bool,
    /// Each reconnect loses the earlier client's state.
    reconnect_count: u64,
    used: Instant,
    pub(super) blocking: Duration,
    /// After this time without a call, the session is checked before use.
    pub(super) idle: Duration,
}

impl Session {
    pub(crate) fn connect(options: SessionOptions, stop: &StopFlag) -> Result<Self, Error> {
        let owner = new_owner(&options)?;
        let pipeline = connect_unless_stopped(&options, &owner, stop)?;
        Ok(Self {
            pipeline,
            options,
            owner,
            stalled: false,
            reconnect_count: 0,
            used: Instant::now(),
            blocking: REPLY_TIMEOUT,
            idle: IDLE,
        })
    }

    pub(super) fn server_details(&self) -> Vec<String> {
        let server =
            self.pipeline.server().map(|server| format!("server implementation: {server}"));
        self.pipeline.enctype().map(str::to_owned).into_iter().chain(server).collect()
    }

    pub(super) fn data_len_max(&self) -> usize {
        self.pipeline.data_len_max()
    }

    pub(super) fn target(&self) -> String {
        self.options.target.to_string()
    }

    /// Retries NFS4ERR_GRACE and NFS4ERR_DELAY.
    pub(crate) fn call<T>(
        &mut self,
        what: &str,
        stop: &StopFlag,
        write: impl FnMut(&mut CallBuilder, &mut Writer),
        read: impl FnMut(ReplyBody<'_>) -> Result<T, CallError>,
    ) -> Result<T, Error> {
        self.reconnect_if_stalled(stop)?;
        self.call_now(what, stop, write, read)
    }

    fn call_now<T>(
        &mut self,
        what: &str,
        stop: &StopFlag,
        mut write: impl FnMut(&mut CallBuilder, &mut Writer),
        mut read: impl FnMut(ReplyBody<'_>) -> Result<T, CallError>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        self.used = start;
        loop {
            let sent = Instant::now();
            let submitted =
                self.pipeline.submitter().submit(0, &mut write).map_err(Error::nfs(what))?;
            if !submitted {
                return Err(Error::Unreachable(format!("{what}: no slot is free")));
            }
            let mut outcome = None;
            while outcome.is_none() {
                self.pipeline
                    .poll(Some(TICK), |_, _, body| outcome = Some(body.and_then(&mut read)))
                    .map_err(Error::nfs(what))?;
                if stop.must_hurry() && sent.elapsed() > SILENCE
                    || sent.elapsed() > 4 * REPLY_TIMEOUT
                {
                    self.stalled = true;
                    return Err(Error::Unreachable(format!("{what}: the server does not answer")));
                }
            }
            match outcome {
                Some(Err(CallError::Refused { status: Status::GRACE | Status::DELAY, .. }))
                    if start.elapsed() < GRACE =>
                {
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

    pub(crate) fn run(
        &mut self,
        work: &mut dyn CallSource,
        depth: usize,
        pace: Pace,
        limit: Option<Duration>,
        stop: &StopFlag,
    ) -> Result<Tally, Error> {
        self.reconnect_if_stalled(stop)?;
        let thread_s = cpu::thread_s();
        // The default timer slack would add to the measured latency.
        let _slack = (pace != Pace::Closed).then(LowTimerSlack::set);
        let mut load = LoadRun::new(work, depth, pace, limit);
        loop {
            load.send_due(&mut self.pipeline, stop.is_set());
            if self.pipeline.submitter().in_flight() == 0 && load.is_done() {
                break;
            }
            let replies = self.pipeline.poll(Some(load.wait(TICK)), |submitter, token, body| {
                load.on_reply(submitter, token as usize, body)
            });
            let silence_max =
                if stop.must_hurry() { SILENCE } else { load.silence_max(self.blocking) };
            let in_flight = self.pipeline.submitter().in_flight();
            match replies {
                Ok(0) if in_flight > 0 && load.silence() > silence_max => load.give_up(in_flight),
                Ok(_) => continue,
                Err(error) => load.fail(in_flight, error),
            }
            self.stalled = true;
            break;
        }
        let (mut tally, error) = load.finish(stop.is_set());
        tally.thread_s = cpu::thread_s() - thread_s;
        self.used = Instant::now();
        match error {
            None => Ok(tally),
            Some(CallError::Mismatch(OTHER_DATA)) => {
                Err(Error::Corrupt(self.options.target.to_string()))
            }
            Some(error) => Err(Error::nfs(self.options.target.to_string())(error)),
        }
    }

    pub(crate) fn complete(
        &mut self,
        work: &mut dyn CallSource,
        depth: usize,
        stop: &StopFlag,
    ) -> Result<Tally, Error> {
        let (start, mut sum) = (Instant::now(), Tally::default());
        loop {
            sum.add(&self.run(work, depth, Pace::Closed, None, stop)?);
            if start.elapsed() > DELAYED_MAX || stop.is_set() || !work.retry_delayed() {
                return Ok(sum);
            }
            std::thread::sleep(PAUSE);
            sum.seconds += PAUSE.as_secs_f64();
        }
    }

    /// Files then have to be opened again.
    pub(super) fn ensure_connected(&mut self, stop: &StopFlag) -> Result<u64, Error> {
        self.reconnect_if_stalled(stop)?;
        Ok(self.reconnect_count)
    }

    /// A lost session has no opens: the next one replaces its client.
    pub(super) fn close_all(&mut self, opens: Vec<Opened>, stop: &StopFlag) {
        for open in opens {
            // The server may have done the CLOSE whose reply never came.
            if self.stalled || matches!(self.close(open, stop), Err(Error::Unreachable(_))) {
                return;
            }
        }
    }

    pub(super) const fn reconnects(&self) -> u64 {
        self.reconnect_count
    }

    fn reconnect_if_stalled(&mut self, stop: &StopFlag) -> Result<(), Error> {
        // The lease may have expired while other subjects were measured (RFC 8881 §8.4.2.3).
        if !self.stalled && self.used.elapsed() > self.idle {
            self.stalled = self.call_now("an idle session", stop, |_, _| {}, |_| Ok(())).is_err();
        }
        if self.stalled {
            self.pipeline = connect_unless_stopped(&self.options, &self.owner, stop)?;
            self.stalled = false;
            self.reconnect_count += 1;
        }
        Ok(())
    }
}

pub(super) const OTHER_DATA: &str = "other data than the file's";

fn connect_unless_stopped(
    options: &SessionOptions,
    owner: &[u8],
    stop: &StopFlag,
) -> Result<Pipeline, Error> {
    let ((sender, connected), thread_options, owner) =
        (mpsc::channel(), options.clone(), owner.to_vec());
    std::thread::spawn(move || {
        let _ = sender.send(pipeline(&thread_options, owner));
    });
    let mut stop_seen = None;
    loop {
        match connected.recv_timeout(TICK) {
            Ok(pipeline) => return pipeline,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Error::Program("a thread panicked".into()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if stop.must_hurry()
                    && stop_seen.get_or_insert_with(Instant::now).elapsed() > SILENCE
                {
                    return Err(Error::Unreachable(format!(
                        "{}: the server does not answer",
                        options.target
                    )));
                }
            }
        }
    }
}

fn new_owner(options: &SessionOptions) -> Result<Vec<u8>, Error> {
    let mut owner = format!("vouch bench {} ", options.sec).into_bytes();
    owner.extend(data_encoding::HEXLOWER.encode(&random()?).bytes());
    Ok(owner)
}

fn random() -> Result<[u8; 8], Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| Error::Input(format!("randomness: {error}")))?;
    Ok(random)
}

fn pipeline(options: &SessionOptions, owner: Vec<u8>) -> Result<Pipeline, Error> {
    let address = options.target.address()?;
    let (tls, protection) = credentials(options)?;
    let identity = Identity {
        slots: options.slots.max(8) as u32,
        source: options.source,
        ..Identity::new(owner, Verifier(random()?))
    };
    Pipeline::connect_with(address, tls.as_ref(), 1, options.connections, &identity, protection)
        .map_err(Error::nfs(options.target.to_string()))
}

/// TLS and the caller's credential, as the flavour demands.
pub(crate) fn credentials(
    options: &SessionOptions,
) -> Result<(Option<TlsClient>, Box<dyn Protection>), Error> {
    let address = options.target.address()?;
    let what = options.target.to_string();
    let tls = tls(options)?;
    let protection: Box<dyn Protection> = match options.sec.service() {
        None => Box::new(Plain::sys(&caller())),
        Some(service) => {
            let name = options.service.clone().unwrap_or_else(|| options.target.service());
            let what = format!("{what}: sec={}", options.sec);
            Box::new(retry_if_closed(&what, CONTEXT_PAUSE, || {
                let initiator = MitInitiator::new(&name, &ClientSource::default())
                    .map_err(|error| Error::Refused(format!("{what}: {error}")))?;
                Ok(establish_with(address, tls.as_ref(), initiator, service))
            })?)
        }
    };
    Ok((tls, protection))
}

fn tls(options: &SessionOptions) -> Result<Option<TlsClient>, Error> {
    if !options.sec.uses_tls() {
        return Ok(None);
    }
    let missing = |what: &str| Error::Input(format!("sec={} needs {what}", options.sec));
    let files = options
        .tls
        .as_ref()
        .ok_or_else(|| missing("--tls-ca, the authorities of the server's certificate"))?;
    let certificate = match options.sec {
        Sec::SysMtls => Some(
            files
                .certificate
                .clone()
                .ok_or_else(|| missing("--tls-cert and --tls-key, the client's certificate"))?,
        ),
        _ => None,
    };
    let client = ClientFiles { authorities: files.authorities.clone(), certificate };
    let name = files.name.as_ref().unwrap_or(&options.target.host);
    TlsClient::new(&client, name).map(Some).map_err(|error| Error::Input(error.to_string()))
}

fn caller() -> AuthSys {
    let gids = rustix::process::getgroups()
        .unwrap_or_default()
        .into_iter()
        .map(rustix::process::Gid::as_raw)
        .take(16)
        .collect();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    AuthSys { stamp: 0, machine_name: b"vouch-bench".to_vec(), uid, gid, gids }
}

struct LowTimerSlack;

impl LowTimerSlack {
    fn set() -> Self {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Self
    }
}

impl Drop for LowTimerSlack {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(None);
    }
}

const TICK: Duration = Duration::from_millis(100);
const REPLY_TIMEOUT: Duration = Duration::from_secs(15);
const CONTEXT_PAUSE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(3);
/// Twice the usual lease.
const GRACE: Duration = Duration::from_secs(180);
const DELAYED_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);
const SILENCE: Duration = Duration::from_secs(2);
