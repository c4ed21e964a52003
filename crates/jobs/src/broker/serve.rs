//! The broker's listeners: agents over TCP, the scheduler over a Unix socket.

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::socket_peercred;
use vouch_daemon::rate_limit::Throttle;
use vouch_gss_mit::MitAcceptor;

use super::connections::ConnectionPermit;
use super::{Agent, Broker};
use crate::channel::{Channel, ChannelError};
use crate::limits::{
    ANSWER_TIMEOUT, CONNECTION_TIMEOUT, CONTROL_LEN_MAX, LOCAL_CONNECTION_COUNT_MAX,
    OTHER_CONNECTION_COUNT_MAX, REQUEST_LEN_MAX,
};
use crate::wire::{Reply, Request};
use crate::{Error, SERVICE};

/// Where the broker listens.
pub struct Listeners {
    pub agents: Vec<TcpListener>,
    pub scheduler: UnixListener,
}

/// Interval of the checks for a stop and for jobs that are over.
const TICK: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(1);
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);

impl Listeners {
    /// Returns when a connection waits, or after a while.
    fn wait(&self) {
        let mut sockets: Vec<PollFd<'_>> =
            self.agents.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        sockets.push(PollFd::new(&self.scheduler, PollFlags::IN));
        let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
        let _ = rustix::event::poll(&mut sockets, Some(&timeout));
        // While all connections are taken, those that wait would make this a busy loop.
        std::thread::sleep(PAUSE);
    }
}

impl Broker {
    /// Serves until `is_stopped`.
    ///
    /// # Errors
    /// If the keytab has no key of the broker, or a listener fails.
    pub fn run(
        self: &Arc<Self>,
        listeners: Listeners,
        is_stopped: impl Fn() -> bool,
    ) -> Result<(), Error> {
        vouch_trust::warn_if_exposed(&self.config.keytab);
        let acceptor = Arc::new(MitAcceptor::new(Some(&self.config.keytab), SERVICE)?);
        let failed = |source| Error::Io { path: "the broker's sockets".into(), source };
        for listener in &listeners.agents {
            listener.set_nonblocking(true).map_err(failed)?;
        }
        listeners.scheduler.set_nonblocking(true).map_err(failed)?;
        let (local, others) =
            (Slots::new(LOCAL_CONNECTION_COUNT_MAX), Slots::new(OTHER_CONNECTION_COUNT_MAX));
        let log = Arc::new(RefusalLog::default());
        let mut expired = Instant::now();
        while !is_stopped() {
            let mut is_idle = true;
            for listener in &listeners.agents {
                while self.agents.make_room(Instant::now())
                    && let Ok((socket, peer)) = listener.accept()
                {
                    is_idle = false;
                    // An IPv4 client of an IPv6 socket has the address that exports record.
                    let address = peer.ip().to_canonical();
                    let Some(place) = self.agents.admit(&socket, address, Instant::now()) else {
                        log.write(address, &"too many connections of one address");
                        continue;
                    };
                    let (broker, acceptor, log) = (self.clone(), acceptor.clone(), log.clone());
                    start(move || broker.serve_agent(socket, (address, &place), &acceptor, &log));
                }
            }
            while let Some(slot) = local.take()
                && let Ok((socket, _)) = listeners.scheduler.accept()
            {
                is_idle = false;
                // Any user may connect, to be told why not. Such connections take no place of the scheduler's.
                let is_scheduler =
                    socket_peercred(&socket).is_ok_and(|peer| self.is_scheduler(peer.uid.as_raw()));
                let Some(slot) = (if is_scheduler { Some(slot) } else { others.take() }) else {
                    continue;
                };
                let broker = self.clone();
                start(move || {
                    let _slot = slot;
                    broker.serve_scheduler(socket);
                });
            }
            if expired.elapsed() >= EXPIRE_INTERVAL {
                expired = Instant::now();
                self.expire();
            }
            if is_idle {
                listeners.wait();
            }
        }
        self.records.stop();
        Ok(())
    }

    fn serve_agent(
        &self,
        socket: TcpStream,
        (address, place): (IpAddr, &ConnectionPermit),
        acceptor: &MitAcceptor,
        log: &RefusalLog,
    ) {
        let served = || -> Result<(), ChannelError> {
            socket.set_nonblocking(false)?;
            socket.set_nodelay(true)?;
            let (mut channel, principal) = Channel::accept(socket, acceptor, CONNECTION_TIMEOUT)?;
            place.set_proved();
            // A connection is authenticated: several requests may follow each other.
            loop {
                channel.set_deadline(CONNECTION_TIMEOUT);
                let request = match channel.receive::<Request>(REQUEST_LEN_MAX) {
                    Ok((request, _)) => request,
                    Err(ChannelError::Io(error))
                        if error.kind() == io::ErrorKind::UnexpectedEof =>
                    {
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                };
                let (reply, tickets) =
                    self.answer_agent(Agent { principal: &principal, address }, request);
                channel.set_deadline(CONNECTION_TIMEOUT);
                channel.send(&reply, &tickets)?;
            }
        };
        if let Err(error) = served() {
            log.write(address, &error);
        }
    }

    fn serve_scheduler(&self, socket: UnixStream) {
        let served = || -> Result<(), ChannelError> {
            socket.set_nonblocking(false)?;
            let peer = socket_peercred(&socket).map_err(io::Error::from)?.uid;
            let mut channel = Channel::plain(socket, CONNECTION_TIMEOUT);
            let (request, _) = channel.receive::<Request>(CONTROL_LEN_MAX)?;
            let reply = match self.is_scheduler(peer.as_raw()) {
                true => self.answer_scheduler(request),
                false => Reply::Refused {
                    reason: format!("uid {} is not the scheduler's (--scheduler)", peer.as_raw()),
                },
            };
            channel.set_deadline(ANSWER_TIMEOUT);
            channel.send(&reply, &[])
        };
        if let Err(error) = served() {
            tracing::warn!(%error, "a request of the scheduler was not answered");
        }
    }
}

fn start(serve: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name("connection".into()).spawn(serve) {
        tracing::error!(%error, "no thread for a connection");
    }
}

/// Counts connections. Those beyond the limit wait in the kernel's queue.
struct Slots {
    free: Arc<AtomicUsize>,
}

struct Slot(Arc<AtomicUsize>);

impl Slots {
    fn new(count: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(count)) }
    }

    /// Called by one thread only.
    fn take(&self) -> Option<Slot> {
        if self.free.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.free.fetch_sub(1, Ordering::AcqRel);
        Some(Slot(self.free.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// Log lines of connections that failed, at a limited rate for each address.
struct RefusalLog {
    throttle: Mutex<Throttle>,
    started: Instant,
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self { throttle: Mutex::new(Throttle::of_lines()), started: Instant::now() }
    }
}

impl RefusalLog {
    fn write(&self, address: IpAddr, error: &dyn std::fmt::Display) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Some(omitted) = self.throttle.lock().admit(address, now_ms) {
            tracing::warn!(%address, omitted, "an agent's connection failed: {error}");
        }
    }
}
