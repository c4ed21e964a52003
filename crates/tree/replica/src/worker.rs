//! A thread of the replica: listeners, connections, and scheduling.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;

use super::answer::{Replica, Serving};
use super::connection::{Connection, Fault};
use super::counters::{Closed, Counters};
use super::limits::{
    ACCEPT_PAUSE, Limits, READ_LEN_MAX, TICK, TURN_ACCEPTS_MAX, TURN_LEN_MAX, TURN_READS_MAX,
};
use super::send::{self, SendBuffer, SendError, Step};
use super::tls::{HANDSHAKE, Session, Tls};
use super::trees::ServedFile;
use super::wake_queue::{Caller, Ticket, WakeQueue};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) tls: Option<Tls>,
    pub(super) is_tls_only: bool,
    pub(super) open: AtomicUsize,
    pub(super) stop: AtomicBool,
}

pub(super) struct Worker {
    poll: Poll,
    admitted: u64,
    listeners: Vec<Listener>,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    again: VecDeque<usize>,
    scratch: WorkerScratch,
    shared: Arc<Shared>,
    drain_until: Option<Instant>,
}

struct WorkerScratch {
    replica: Replica,
    read_buffer: Box<[u8; READ_LEN_MAX]>,
    send_buffer: SendBuffer,
    shared: Arc<Shared>,
    wake_queue: Arc<WakeQueue>,
}

struct Listener {
    socket: TcpListener,
    ready: bool,
    paused_until: Option<Instant>,
}

impl Listener {
    fn may_accept(&self) -> bool {
        self.ready && self.paused_until.is_none()
    }
}

impl Worker {
    pub(super) fn new(
        listeners: Vec<std::net::TcpListener>,
        replica: Replica,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let mut taken = Vec::with_capacity(listeners.len());
        for (i, listener) in listeners.into_iter().enumerate() {
            let mut socket = TcpListener::from_std(listener);
            poll.registry().register(&mut socket, Token(i), Interest::READABLE)?;
            taken.push(Listener { socket, ready: true, paused_until: None });
        }
        let (read_buffer, send_buffer) = (Box::new([0; READ_LEN_MAX]), SendBuffer::new());
        let wake_queue = Arc::new(WakeQueue { ended: Mutex::default(), waker });
        let scratch =
            WorkerScratch { replica, read_buffer, send_buffer, shared: shared.clone(), wake_queue };
        let (peers, free, again) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Self {
            poll,
            admitted: 0,
            listeners: taken,
            peers,
            free,
            again,
            scratch,
            shared,
            drain_until: None,
        })
    }

    pub(super) fn waker(&self) -> Arc<Waker> {
        self.scratch.wake_queue.waker.clone()
    }

    /// Finishes replies in progress when stopped.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut tick_at = Instant::now() + TICK;
        loop {
            match self.poll.poll(&mut events, Some(self.blocking(tick_at))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let now = Instant::now();
            let listeners = self.listeners.len();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(i) if i < LISTENERS_MAX => {
                        if let Some(listener) = self.listeners.get_mut(i) {
                            listener.ready = true;
                        }
                    }
                    Token(token) => {
                        let id = token - LISTENERS_MAX;
                        if let Some(Some(peer)) = self.peers.get_mut(id) {
                            peer.hear(event);
                            self.turn(id, now);
                        }
                    }
                }
            }
            self.end_waits(now);
            for _ in 0..self.again.len() {
                if let Some(id) = self.again.pop_front()
                    && let Some(Some(peer)) = self.peers.get_mut(id)
                {
                    peer.queued = false;
                    self.turn(id, now);
                }
            }
            (0..listeners).for_each(|i| self.accept(i, now));
            if now >= tick_at {
                tick_at = now + TICK;
                self.expire(now);
            }
            if self.shared.stop.load(Ordering::Acquire) && self.drain(now) {
                return Ok(());
            }
        }
    }

    fn end_waits(&mut self, now: Instant) {
        let ended = std::mem::take(&mut *self.scratch.wake_queue.ended.lock());
        for (ticket, how) in ended {
            if let Some(Some(peer)) = self.peers.get_mut(ticket.0)
                && peer.ticket == ticket
            {
                peer.connection.wake(how);
                self.turn(ticket.0, now);
            }
        }
    }

    fn blocking(&self, tick_at: Instant) -> Duration {
        if !self.again.is_empty() || self.listeners.iter().any(Listener::may_accept) {
            return Duration::ZERO;
        }
        let paused = self.listeners.iter().filter_map(|listener| listener.paused_until);
        let until = paused
            .chain(self.drain_until.map(|_| Instant::now() + DRAIN_STEP))
            .fold(tick_at, Instant::min);
        until.saturating_duration_since(Instant::now())
    }

    fn accept(&mut self, i: usize, now: Instant) {
        for _ in 0..TURN_ACCEPTS_MAX {
            let listener = &mut self.listeners[i];
            if listener.paused_until.is_some_and(|until| until <= now) {
                listener.paused_until = None;
            }
            if !listener.may_accept() {
                return;
            }
            match listener.socket.accept() {
                Ok((socket, _)) => self.admit(socket, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => listener.ready = false,
                // accept(2): pending errors of the new connection are its own.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    listener.paused_until = Some(now + ACCEPT_PAUSE);
                    self.scratch.counters().accept_failed.add(1);
                    tracing::warn!(%error, "connections can't be accepted for a moment");
                }
            }
        }
    }

    fn admit(&mut self, socket: TcpStream, now: Instant) {
        if self.shared.open.fetch_add(1, Ordering::Relaxed) >= self.shared.limits.connections_max {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
            self.scratch.counters().refused.add(1);
            return;
        }
        self.scratch.counters().accepted.add(1);
        let id = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        // A client usually sends at once, and a short connection may need no further event.
        self.admitted += 1;
        self.peers[id] = Some(Peer::new(socket, (id, self.admitted), now));
        self.turn(id, now);
    }

    fn turn(&mut self, id: usize, now: Instant) {
        let Some(Some(peer)) = self.peers.get_mut(id) else { return };
        let mut end = peer.turn(&mut self.scratch, now);
        let is_idle = peer.connection.output().is_empty() && !peer.connection.is_waiting();
        if self.drain_until.is_some() && matches!(end, TurnEnd::Wait) && is_idle {
            end = TurnEnd::Close(Closed::Shutdown);
        }
        peer.connection.rest(now);
        match end {
            TurnEnd::Wait if peer.may_look_again() => {
                peer.queued = true;
                self.again.push_back(id);
            }
            TurnEnd::Wait => {
                if peer.register(self.poll.registry(), Token(LISTENERS_MAX + id)).is_err() {
                    self.close(id, Closed::Failed);
                }
            }
            TurnEnd::Again => {
                if !peer.queued {
                    peer.queued = true;
                    self.again.push_back(id);
                }
            }
            TurnEnd::Close(reason) => self.close(id, reason),
        }
    }

    fn close(&mut self, id: usize, reason: Closed) {
        if let Some(mut peer) = self.peers[id].take() {
            peer.end();
            self.free.push(id);
            self.scratch.counters().close(reason);
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn expire(&mut self, now: Instant) {
        let limits = self.shared.limits.clone();
        let crowded = self.shared.open.load(Ordering::Relaxed) > limits.connections_max / 10 * 9;
        for id in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[id] else { continue };
            let is_late =
                peer.is_handshaking() && now.duration_since(peer.admitted_at) >= limits.stall_max;
            if let Some(fault) = peer
                .connection
                .expire(now, &limits, crowded)
                .or(is_late.then_some(Fault::SlowRequest))
            {
                self.close(id, fault.into());
            }
        }
    }

    fn drain(&mut self, now: Instant) -> bool {
        if self.drain_until.is_none() {
            self.drain_until = Some(now + self.shared.limits.drain_max);
            self.listeners.clear();
            (0..self.peers.len()).for_each(|id| self.turn(id, now));
        }
        let late = self.drain_until.is_some_and(|until| now >= until);
        if late {
            (0..self.peers.len()).for_each(|id| self.close(id, Closed::Shutdown));
        }
        self.peers.iter().all(Option::is_none)
    }
}

impl WorkerScratch {
    fn service(&self, ticket: Ticket) -> Serving<'_> {
        Serving { replica: &self.replica, caller: Caller { wake_queue: &self.wake_queue, ticket } }
    }

    fn counters(&self) -> &Counters {
        &self.replica.counters
    }
}

struct Peer {
    socket: TcpStream,
    ticket: Ticket,
    connection: Connection<ServedFile>,
    tls: Option<Session>,
    admitted_at: Instant,
    is_new: bool,
    readable: bool,
    /// The peer closed its half, so a short read is not the end.
    read_closed: bool,
    writable: bool,
    interest: Option<Interest>,
    queued: bool,
    looked_again: bool,
    asked_at: Option<Instant>,
}

enum TurnEnd {
    Wait,
    Again,
    Close(Closed),
}

impl Peer {
    fn new(socket: TcpStream, ticket: Ticket, now: Instant) -> Self {
        Self {
            socket,
            ticket,
            connection: Connection::new(now),
            tls: None,
            admitted_at: now,
            is_new: true,
            readable: true,
            read_closed: false,
            writable: true,
            interest: None,
            queued: false,
            looked_again: false,
            asked_at: None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(Session::is_handshaking)
    }

    fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&self.socket);
        }
    }

    fn hear(&mut self, event: &mio::event::Event) {
        let closed = event.is_error() || event.is_read_closed();
        self.readable |= event.is_readable() || closed;
        self.read_closed |= closed;
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
    }

    /// Edge-triggered: one registration is enough.
    fn register(&mut self, registry: &mio::Registry, token: Token) -> io::Result<()> {
        let wanted =
            if self.writable && self.interest != Some(BOTH) { Interest::READABLE } else { BOTH };
        let old = self.interest.replace(wanted);
        match old {
            None => registry.register(&mut self.socket, token, wanted),
            Some(old) if old != wanted => registry.reregister(&mut self.socket, token, wanted),
            Some(_) => Ok(()),
        }
    }

    /// Reads again once after each read, instead of waiting for an event: a served client soon asks
    /// again or leaves.
    fn may_look_again(&mut self) -> bool {
        let may = self.interest.is_none()
            && !self.queued
            && self.writable
            && !std::mem::replace(&mut self.looked_again, true);
        self.readable |= may;
        may
    }

    fn turn(&mut self, scratch: &mut WorkerScratch, now: Instant) -> TurnEnd {
        match self.continue_requests(scratch, now) {
            Ok(end) => end,
            Err(fault) => TurnEnd::Close(fault.into()),
        }
    }

    fn continue_requests(
        &mut self,
        scratch: &mut WorkerScratch,
        now: Instant,
    ) -> Result<TurnEnd, Fault> {
        let (mut sent, mut reads) = (0, 0);
        loop {
            if let Some(end) = self.send_output(scratch, &mut sent) {
                return Ok(end);
            }
            if let Some(asked_at) = self.asked_at.take() {
                scratch.counters().latency(asked_at.elapsed());
            }
            if self.connection.is_ending() {
                return Ok(TurnEnd::Close(Closed::Complete));
            }
            if self.connection.is_waiting() {
                return Ok(TurnEnd::Wait);
            }
            if self.connection.has_undecoded() {
                self.connection.resume(&scratch.service(self.ticket))?;
            } else if let Some(n) = self.decrypted(scratch) {
                self.connection.feed(&scratch.read_buffer[..n], &scratch.service(self.ticket))?;
            } else if let Some(end) = self.receive(scratch, &mut reads)? {
                return Ok(end);
            }
            if !self.connection.output().is_empty() {
                self.asked_at = Some(now);
            }
        }
    }

    fn send_output(&mut self, scratch: &mut WorkerScratch, sent: &mut u64) -> Option<TurnEnd> {
        while !self.connection.output().is_empty() {
            if !self.writable || *sent >= TURN_LEN_MAX {
                return Some(if self.writable { TurnEnd::Again } else { TurnEnd::Wait });
            }
            let step = match &mut self.tls {
                Some(tls) => {
                    tls.step(&self.socket, self.connection.output(), &mut scratch.send_buffer)
                }
                None => send::step(
                    self.socket.as_fd(),
                    self.connection.output(),
                    &mut scratch.send_buffer,
                ),
            };
            let n = match step {
                Ok(Step::Sent(n)) => n,
                Ok(Step::Full(n)) => {
                    self.writable = false;
                    n
                }
                Err(SendError::Peer) => return Some(TurnEnd::Close(Closed::Failed)),
                Err(SendError::File { place, error }) => {
                    // The length of the answer was sent already: only a close tells the client.
                    scratch.replica.trees.note_unreadable(&place, &error);
                    return Some(TurnEnd::Close(Closed::Database));
                }
            };
            *sent += n;
            scratch.counters().sent_len.add(n);
            self.connection.sent(n);
        }
        None
    }

    fn receive(
        &mut self,
        scratch: &mut WorkerScratch,
        reads: &mut u32,
    ) -> Result<Option<TurnEnd>, Fault> {
        if !self.flush_tls() || !self.readable {
            return Ok(Some(TurnEnd::Wait));
        }
        if *reads == TURN_READS_MAX {
            return Ok(Some(TurnEnd::Again));
        }
        *reads += 1;
        let n = match (&self.socket).read(&mut scratch.read_buffer[..]) {
            Ok(0) => return Ok(Some(TurnEnd::Close(Closed::Peer))),
            Ok(n) => n,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                self.readable = error.kind() == io::ErrorKind::Interrupted;
                return Ok(None);
            }
            Err(_) => return Ok(Some(TurnEnd::Close(Closed::Failed))),
        };
        scratch.counters().received_len.add(n as u64);
        self.looked_again = false;
        // A short read emptied the socket (epoll(7)); a later end is an event.
        self.readable = n == READ_LEN_MAX || self.read_closed;
        if !self.receive_tls(n, scratch)? {
            self.connection.feed(&scratch.read_buffer[..n], &scratch.service(self.ticket))?;
        }
        Ok(None)
    }
}

impl Peer {
    fn receive_tls(&mut self, n: usize, scratch: &WorkerScratch) -> Result<bool, Fault> {
        let is_first = std::mem::replace(&mut self.is_new, false);
        if let Some(tls) = &scratch.shared.tls
            && is_first
            && scratch.read_buffer[0] == HANDSHAKE
        {
            self.tls = Some(Session::new(&tls.config()).map_err(|_| Fault::BadRequest)?);
        }
        let Some(tls) = &mut self.tls else {
            // Clear text is refused before the request is read.
            return if scratch.shared.is_tls_only { Err(Fault::ClearText) } else { Ok(false) };
        };
        tls.receive(&scratch.read_buffer[..n]).map_err(|error| {
            tracing::debug!(%error, "TLS failed");
            Fault::BadRequest
        })?;
        Ok(true)
    }

    fn decrypted(&mut self, scratch: &mut WorkerScratch) -> Option<usize> {
        self.tls.as_mut().map(|tls| tls.read(&mut scratch.read_buffer[..])).filter(|n| *n > 0)
    }

    /// TLS's own records; false if the socket is full or broken.
    fn flush_tls(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return true };
        let is_flushed = self.writable && tls.flush(&self.socket).unwrap_or(true);
        self.writable &= is_flushed;
        is_flushed
    }
}

impl From<Fault> for Closed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::BadRequest => Self::BadRequest,
            Fault::Idle => Self::Idle,
            Fault::SlowRequest => Self::SlowRequest,
            Fault::SlowReader => Self::SlowReader,
            Fault::ClearText => Self::ClearText,
        }
    }
}

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Lower tokens belong to listeners, others to connections.
const LISTENERS_MAX: usize = 64;

const WAKE: Token = Token(usize::MAX);

const DRAIN_STEP: Duration = Duration::from_millis(50);
