//! Load on a live NFSv4 export: one client thread, any number of calls in flight on one or more
//! connections, each reply looked at. The client's own cost is measured beside the server's.

pub mod files;
pub mod idle;
pub mod kerberos;
pub mod metadata;
pub mod pages;
pub mod peers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vouch_nfs4::op::{Args, LookupArgs, PutfhArgs, Results};
use vouch_nfs4::{Filehandle, Name, Verifier};
use vouch_nfs4_client::{Error, Identity, OpenCall, Pipeline, Plain, Protection, ReplyBody};
use vouch_oncrpc::AuthSys;
use vouch_xdr::Writer;

use crate::OrStop as _;
use crate::process::Server;

/// A kind of load: what each lane asks next. A lane is one call in flight, and what follows from
/// its reply.
pub trait Work {
    /// Whether the lane has another call to make; prepares it.
    fn next(&mut self, lane: usize) -> bool;

    /// Appends the operations of that call.
    fn write(&mut self, lane: usize, call: &mut OpenCall, w: &mut Writer);

    /// Data that the call ends with beside what was written, in units of four bytes: it is sent
    /// from where it is.
    fn data(&mut self, _lane: usize) -> Option<Arc<[u8]>> {
        None
    }

    /// Takes the reply: bytes moved and things done by it.
    fn reply(&mut self, lane: usize, body: ReplyBody<'_>) -> Result<Gain, Error>;
}

/// What a reply brought.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gain {
    /// Bytes of file data, read or written.
    pub bytes: u64,
    /// Operations in the words of the benchmark: a file created, a page read.
    pub done: u64,
}

/// What came of a load.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    /// Bytes of file data.
    pub bytes: u64,
    /// Operations.
    pub done: u64,
    /// Seconds on the clock.
    pub elapsed_s: f64,
    /// CPU seconds of the client.
    pub client_s: f64,
    /// CPU seconds of the server.
    pub server_s: f64,
    /// Half of the calls took no longer, microseconds.
    pub p50_us: f64,
    /// 99 of 100 calls took no longer, microseconds.
    pub p99_us: f64,
}

/// A client of a server.
pub struct Client {
    pipeline: Pipeline,
    /// Data of WRITE is sent from where it is: nothing protects it.
    apart: bool,
}

impl Client {
    /// Introduces itself under a name of its own, with so many slots.
    pub fn connect(port: u16, name: &str, connections: usize, slots: usize) -> Self {
        let plain = Self::connect_by(port, name, connections, slots, Box::new(Plain::sys(&superuser())));
        Self { apart: true, ..plain }
    }

    /// Likewise, with this protection of its calls.
    pub fn connect_by(port: u16, name: &str, connections: usize, slots: usize, protection: Box<dyn Protection>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
        let identity = Identity { slots: slots.max(8) as u32, ..Identity::new(name.as_bytes(), Verifier(nanos.to_be_bytes())) };
        let pipeline = Pipeline::connect(address, 1, connections, &identity, protection);
        Self { pipeline: pipeline.or_stop("the client's session"), apart: false }
    }

    /// The handle of a path below the export.
    pub fn handle(&mut self, path: &[&str]) -> Filehandle {
        let mut find = Find { path, handle: None };
        self.run(&mut find, 1, None, None);
        find.handle.ok_or("no handle").or_stop(path.join("/"))
    }

    /// Runs a load at this depth, until it has no more to ask or the time is over.
    pub fn run(&mut self, work: &mut impl Work, depth: usize, time: Option<Duration>, server: Option<&Server>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut latencies: Vec<u32> = Vec::with_capacity(1 << 20);
        let server_cpu = || server.map_or(0.0, |server| server.cpu_ever().as_secs_f64());
        let (start, client, served) = (Instant::now(), thread_cpu_s(), server_cpu());
        let mut sent = vec![start; depth];
        for (lane, sent) in sent.iter_mut().enumerate() {
            if self.pipeline.submitter().idle() == 0 {
                // Slots, or the window of its Kerberos contexts.
                eprintln!("the server takes {lane} calls at a time, where {depth} were wanted");
                break;
            }
            if work.next(lane) {
                *sent = Instant::now();
                let submitted = self.pipeline.submitter().submit_apart(lane as u64, |call, w| write(work, lane, self.apart, call, w));
                assert!(submitted.or_stop("a call"), "a slot that is idle is free");
            }
        }
        while self.pipeline.submitter().in_flight() > 0 {
            let apart = self.apart;
            let over = time.is_some_and(|time| start.elapsed() >= time);
            let turn = self.pipeline.turn(Some(Duration::from_secs(20)), |submitter, token, body| {
                let lane = token as usize;
                let now = Instant::now();
                latencies.push(u32::try_from((now - sent[lane]).as_nanos() / 100).unwrap_or(u32::MAX));
                let gain = body.and_then(|body| work.reply(lane, body)).or_stop("a reply");
                outcome.bytes += gain.bytes;
                outcome.done += gain.done;
                if !over && work.next(lane) {
                    sent[lane] = now;
                    submitter.submit_apart(token, |call, w| write(work, lane, apart, call, w)).or_stop("a call");
                }
            });
            if turn.or_stop("the connection") == 0 {
                assert!(start.elapsed() < Duration::from_secs(600), "the server answers");
            }
        }
        outcome.elapsed_s = start.elapsed().as_secs_f64();
        outcome.client_s = thread_cpu_s() - client;
        outcome.server_s = server_cpu() - served;
        latencies.sort_unstable();
        let quantile = |part: usize| latencies.get(latencies.len() * part / 100).map_or(f64::NAN, |&tenths| f64::from(tenths) / 10.0);
        (outcome.p50_us, outcome.p99_us) = (quantile(50), quantile(99));
        outcome
    }
}

/// Writes a lane's call; its data is given back if it may be sent from where it is, and appended
/// else.
fn write(work: &mut impl Work, lane: usize, apart: bool, call: &mut OpenCall, w: &mut Writer) -> Option<Arc<[u8]>> {
    work.write(lane, call, w);
    let data = work.data(lane)?;
    if apart {
        return Some(data);
    }
    w.raw(&data);
    None
}

/// Appends PUTFH.
pub(crate) fn putfh(handle: &Filehandle, call: &mut OpenCall, w: &mut Writer) {
    call.op(w, &Args::Putfh(PutfhArgs { handle: *handle }));
}

/// The superuser of this machine, whom both servers are told to trust.
pub(crate) fn superuser() -> AuthSys {
    AuthSys { stamp: 0, machine_name: b"bench".to_vec(), uid: 0, gid: 0, gids: Vec::new() }
}

/// Walks to a path.
struct Find<'a> {
    path: &'a [&'a str],
    handle: Option<Filehandle>,
}

impl Work for Find<'_> {
    fn next(&mut self, _lane: usize) -> bool {
        self.handle.is_none()
    }

    fn write(&mut self, _lane: usize, call: &mut OpenCall, w: &mut Writer) {
        call.op(w, &Args::Putrootfh);
        for name in std::iter::once(&peers::EXPORT).chain(self.path) {
            call.op(w, &Args::Lookup(LookupArgs { name: Name(name.as_bytes()) }));
        }
        call.op(w, &Args::Getfh);
    }

    fn reply(&mut self, _lane: usize, mut body: ReplyBody<'_>) -> Result<Gain, Error> {
        for _ in 0..self.path.len() + 2 {
            body.next_ok()?;
        }
        let Results::Getfh(Ok(got)) = body.next_ok()? else { return Err(Error::Mismatch("not GETFH's result")) };
        self.handle = Some(got.handle);
        Ok(Gain::default())
    }
}

/// CPU seconds of the calling thread.
fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
