//! Quiet clients beside greedy ones: their latency, and the share of one client beside another one
//! with four sessions.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use vouch_nfs4::op::{
    Access, AccessArgs, Args, GetattrArgs, LookupArgs, ReadArgs, StableHow, WriteArgs,
};
use vouch_nfs4::{Bytes, Filehandle, Name, Stateid, Status};
use vouch_nfs4_client::{CallBuilder, Error as CallError, ReplyBody};
use vouch_xdr::Writer;

use super::calls::{Opened, putfh};
use super::metadata::WANTED;
use super::session::SessionOptions;
use super::{CallResult, CallSource, PREFIX, Pace, Session};
use crate::target::{NfsTarget, Sec, TlsFiles};
use crate::{Error, Latency, StopFlag};

pub struct FairnessOptions {
    pub targets: Vec<(String, NfsTarget)>,
    pub sec: Sec,
    pub service: Option<String>,
    pub tls: Option<TlsFiles>,
    pub quiet: u16,
    pub greedy: u16,
    /// Calls in flight of each greedy client.
    pub depths: Vec<u16>,
    pub phase: Duration,
    pub rounds: u16,
}

/// Of all rounds together.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fairness {
    pub server: String,
    pub idle: QuietLatency,
    pub greed: Vec<GreedyLoad>,
    /// Part of all calls of a client with one session, beside a client with four.
    pub share: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct GreedyLoad {
    pub depth: u16,
    pub quiet: QuietLatency,
    /// Of all greedy clients.
    pub written_bytes_per_second: f64,
    pub lookups_per_second: f64,
}

/// Microseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct QuietLatency {
    pub calls: u64,
    pub getattr_p50: f64,
    pub getattr_p99: f64,
    pub read_p50: f64,
    pub read_p99: f64,
}

struct Server {
    label: String,
    control: Session,
    root: Filehandle,
    name: String,
    directory: Filehandle,
    file: Filehandle,
    quiet: Vec<Session>,
    greedy: Vec<Session>,
    /// One client, and the sessions of another one.
    rivals: Vec<Session>,
    idle: [Latency; 2],
    busy: Vec<Busy>,
    shares: [u64; 2],
}

#[derive(Default)]
struct Busy {
    depth: u16,
    latency: [Latency; 2],
    written: f64,
    lookups: f64,
}

pub fn measure(options: &FairnessOptions, stop: &StopFlag) -> Result<Vec<Fairness>, Error> {
    run_first();
    let mut servers = Vec::new();
    let mut result = options.targets.iter().try_for_each(|(label, target)| {
        servers.push(Server::connect(label, target, options, stop)?);
        Ok(())
    });
    for _ in 0..options.rounds {
        for server in &mut servers {
            if result.is_ok() && !stop.is_set() {
                result = server.round(options, stop);
            }
        }
    }
    let figures = servers.iter().map(|server| server.figures(options)).collect();
    for server in servers {
        let removed = server.remove(stop);
        result = result.and(removed);
    }
    result?;
    if stop.is_set() { Err(Error::Interrupted) } else { Ok(figures) }
}

impl Server {
    fn connect(
        label: &str,
        target: &NfsTarget,
        options: &FairnessOptions,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let is_loopback = target.address()?.ip() == IpAddr::from(Ipv4Addr::LOCALHOST);
        let session = |client: u16| {
            let [high, low] = client.to_be_bytes();
            Session::connect(
                SessionOptions {
                    target: target.clone(),
                    sec: options.sec,
                    service: options.service.clone(),
                    tls: options.tls.clone(),
                    connections: 1,
                    slots: options.depths.iter().copied().map(usize::from).fold(DEPTH, usize::max),
                    source: is_loopback.then(|| [127, 1, high, low].into()),
                },
                stop,
            )
        };
        let mut control = session(0)?;
        let root = control.walk(&target.path, stop)?;
        let name = format!("{PREFIX}fairness-{}", std::process::id());
        let directory = control.mkdir(&root, &name, stop)?;
        let connected = (|| {
            let opened = control.open(&directory, b"file", true, stop)?;
            control.complete(&mut Writes::new(opened, Some(FILE_MIB)), 8, stop)?;
            control.close(opened, stop)?;
            let (quiet, greedy) = (1 + options.quiet, 1 + options.quiet + options.greedy);
            let sessions =
                |clients: std::ops::Range<u16>| clients.map(session).collect::<Result<Vec<_>, _>>();
            let mut rivals = sessions(greedy..greedy + 1)?;
            for _ in 0..RIVAL_SESSIONS {
                rivals.push(session(greedy + 1)?);
            }
            Ok((opened.handle, sessions(1..quiet)?, sessions(quiet..greedy)?, rivals))
        })();
        let (file, quiet, greedy, rivals) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                control.remove_all(&root, name.as_bytes(), stop)?;
                return Err(error);
            }
        };
        Ok(Server {
            label: label.to_owned(),
            control,
            root,
            name,
            directory,
            file,
            quiet,
            greedy,
            rivals,
            idle: Default::default(),
            busy: options.depths.iter().map(|&depth| Busy { depth, ..Busy::default() }).collect(),
            shares: [0; 2],
        })
    }

    fn round(&mut self, options: &FairnessOptions, stop: &StopFlag) -> Result<(), Error> {
        probe(&mut self.quiet, self.file, options.phase, &mut self.idle, stop)?;
        (0..self.busy.len()).try_for_each(|at| self.beside_greedy_clients(at, options, stop))?;
        self.share_of_rivals(options.phase, stop)
    }

    fn beside_greedy_clients(
        &mut self,
        at: usize,
        options: &FairnessOptions,
        stop: &StopFlag,
    ) -> Result<(), Error> {
        let (directory, file, phase) = (self.directory, self.file, options.phase);
        let files = (0..self.greedy.len())
            .step_by(2)
            .map(|at| {
                self.greedy[at].open(&directory, format!("greedy{at}").as_bytes(), true, stop)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let enough = StopFlag::default();
        let (greedy, quiet, busy) = (&mut self.greedy, &mut self.quiet, &mut self.busy[at]);
        let depth = busy.depth.into();
        let tallies = std::thread::scope(|scope| {
            let threads: Vec<_> = greedy
                .iter_mut()
                .enumerate()
                .map(|(at, session)| {
                    let (enough, files) = (&enough, &files);
                    scope.spawn(move || match at % 2 {
                        0 => load(
                            session,
                            &mut Writes::new(files[at / 2], None),
                            depth,
                            None,
                            enough,
                        ),
                        _ => load(session, &mut Lookups::new(directory), depth, None, enough),
                    })
                })
                .collect();
            std::thread::sleep(WARM_UP);
            let probed = probe(quiet, file, phase, &mut busy.latency, stop);
            enough.set();
            let tallies: Result<Vec<_>, _> = threads.into_iter().map(joined).collect();
            probed.and(tallies)
        })?;
        for (at, tally) in tallies.into_iter().enumerate() {
            match at % 2 {
                0 => busy.written += tally.bytes as f64 / tally.seconds,
                _ => busy.lookups += tally.operations as f64 / tally.seconds,
            }
        }
        for (at, opened) in files.into_iter().enumerate() {
            self.greedy[2 * at].close(opened, stop)?;
        }
        Ok(())
    }

    fn share_of_rivals(&mut self, phase: Duration, stop: &StopFlag) -> Result<(), Error> {
        let (directory, rivals) = (self.directory, &mut self.rivals);
        let tallies = std::thread::scope(|scope| {
            let threads: Vec<_> = rivals
                .iter_mut()
                .map(|session| {
                    scope.spawn(move || {
                        load(session, &mut Accesses(directory), DEPTH, Some(phase), stop)
                    })
                })
                .collect();
            threads.into_iter().map(joined).collect::<Result<Vec<_>, _>>()
        })?;
        for (at, tally) in tallies.into_iter().enumerate() {
            self.shares[usize::from(at > 0)] += tally.operations;
        }
        Ok(())
    }

    fn figures(&self, options: &FairnessOptions) -> Fairness {
        let rounds = f64::from(options.rounds);
        Fairness {
            server: self.label.clone(),
            idle: quantiles(&self.idle),
            greed: self.busy.iter().map(|busy| busy.figures(rounds)).collect(),
            share: self.shares[0] as f64 / (self.shares[0] + self.shares[1]).max(1) as f64,
        }
    }

    fn remove(mut self, stop: &StopFlag) -> Result<(), Error> {
        self.control.remove_all(&self.root, self.name.as_bytes(), stop)
    }
}

impl Busy {
    fn figures(&self, rounds: f64) -> GreedyLoad {
        GreedyLoad {
            depth: self.depth,
            quiet: quantiles(&self.latency),
            written_bytes_per_second: self.written / rounds,
            lookups_per_second: self.lookups / rounds,
        }
    }
}

fn quantiles([getattr, read]: &[Latency; 2]) -> QuietLatency {
    QuietLatency {
        calls: getattr.count() + read.count(),
        getattr_p50: getattr.quantile_us(0.5),
        getattr_p99: getattr.quantile_us(0.99),
        read_p50: read.quantile_us(0.5),
        read_p99: read.quantile_us(0.99),
    }
}

/// The clients take turns, each with one GETATTR and one READ of 4 KiB.
fn probe(
    clients: &mut [Session],
    file: Filehandle,
    phase: Duration,
    [getattr, read]: &mut [Latency; 2],
    stop: &StopFlag,
) -> Result<(), Error> {
    let start = Instant::now();
    for (turn, at) in (0..clients.len()).cycle().enumerate() {
        if start.elapsed() >= phase || stop.is_set() {
            break;
        }
        let offset = turn as u64 * 7919 % (FILE_MIB * 256) * 4096;
        let read_args = ReadArgs { stateid: Stateid::ANONYMOUS, offset, count: 4096 };
        let calls = [Args::Getattr(GetattrArgs { wanted: WANTED }), Args::Read(read_args)];
        for (args, latency) in calls.iter().zip([&mut *getattr, &mut *read]) {
            let sent = Instant::now();
            clients[at].call(
                "a call of a quiet client",
                stop,
                |call, w| {
                    putfh(&file, call, w);
                    call.op(w, args);
                },
                |mut body| (0..2).try_for_each(|_| body.next_ok().map(drop)),
            )?;
            latency.record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    Ok(())
}

/// The thread that measures runs before a server that `chrt --rr 1` started, so that the latency of
/// this machine's scheduler is not counted as the server's. Needs root.
fn run_first() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = Command::new("chrt")
        .args(["--reset-on-fork", "--rr", "--pid", "2", &thread])
        .stderr(Stdio::null())
        .status();
}

/// On a machine with few CPUs, the thread that measures runs before those that make load: latency
/// of this machine's scheduler is not the server's.
fn load(
    session: &mut Session,
    work: &mut dyn CallSource,
    depth: usize,
    limit: Option<Duration>,
    stop: &StopFlag,
) -> Result<super::Tally, Error> {
    let _ = rustix::process::nice(LOAD_NICE);
    session.run(work, depth, Pace::Closed, limit, stop)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Error>>) -> Result<T, Error> {
    thread.join().unwrap_or_else(|_| Err(Error::Program("a thread panicked".into())))
}

/// 1 MiB each, without a sync.
struct Writes {
    file: Opened,
    left: Option<u64>,
    next: u64,
    data: Vec<u8>,
}

impl Writes {
    fn new(file: Opened, left: Option<u64>) -> Self {
        Writes { file, left, next: 0, data: vec![7; WRITE_LEN] }
    }
}

impl CallSource for Writes {
    fn next(&mut self, _lane: usize) -> bool {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return false;
            }
            *left -= 1;
        }
        self.next = (self.next + 1) % FILE_MIB;
        true
    }

    fn write(&mut self, _lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        putfh(&self.file.handle, call, w);
        call.op(
            w,
            &Args::Write(WriteArgs {
                stateid: self.file.stateid,
                offset: self.next * WRITE_LEN as u64,
                stable: StableHow::Unstable,
                data: Bytes(&self.data),
            }),
        );
    }

    fn on_reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, CallError> {
        (0..2).try_for_each(|_| body.next_ok().map(drop))?;
        Ok(CallResult { bytes: WRITE_LEN as u64, operations: 1 })
    }

    fn on_refusal(&mut self, _lane: usize, _status: Status) {}
}

/// Of missing names, as compilers search headers.
struct Lookups {
    directory: Filehandle,
    next: u64,
}

impl Lookups {
    fn new(directory: Filehandle) -> Self {
        Lookups { directory, next: 0 }
    }
}

impl CallSource for Lookups {
    fn next(&mut self, _lane: usize) -> bool {
        self.next += 1;
        true
    }

    fn write(&mut self, _lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        putfh(&self.directory, call, w);
        let name = format!("missing{}", self.next % 1000);
        call.op(w, &Args::Lookup(LookupArgs { name: Name(name.as_bytes()) }));
    }

    fn on_reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, CallError> {
        body.next_ok()?;
        match body.next_ok() {
            Err(CallError::Refused { status: Status::NOENT, .. }) => {
                Ok(CallResult { bytes: 0, operations: 1 })
            }
            Err(error) => Err(error),
            Ok(_) => Err(CallError::Mismatch("a missing name was found")),
        }
    }

    fn on_refusal(&mut self, _lane: usize, _status: Status) {}
}

/// Many operations a call, so that the server is the limit and not the load generator.
struct Accesses(Filehandle);

impl CallSource for Accesses {
    fn next(&mut self, _lane: usize) -> bool {
        true
    }

    fn write(&mut self, _lane: usize, call: &mut CallBuilder, w: &mut Writer) {
        putfh(&self.0, call, w);
        (0..ACCESSES)
            .for_each(|_| call.op(w, &Args::Access(AccessArgs { access: Access(ACCESS_ALL) })));
    }

    fn on_reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<CallResult, CallError> {
        (0..=ACCESSES).try_for_each(|_| body.next_ok().map(drop))?;
        Ok(CallResult { bytes: 0, operations: 1 })
    }

    fn on_refusal(&mut self, _lane: usize, _status: Status) {}
}

const ACCESSES: usize = 24;
const ACCESS_ALL: u32 = 0x3f;
/// Of clients that compete for shares.
const DEPTH: usize = 64;
const WRITE_LEN: usize = 1 << 20;
const FILE_MIB: u64 = 64;
const RIVAL_SESSIONS: usize = 4;
const WARM_UP: Duration = Duration::from_millis(500);
const LOAD_NICE: i32 = 10;
