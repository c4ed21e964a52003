use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::handshake_queue::HandshakeQueue;
use super::peer::{CloseReason, Peer, TurnEnd};
use crate::clock;
use crate::driver::Driver;
use crate::fair_queue::FairQueue;
use crate::limits::{HANDSHAKE_MAX, HANDSHAKES_AT_ONCE, TICK};
use crate::memory_quota::quota_address;
use crate::tls::PeerTls;
use crate::transport::connection::{Connection, Side};
use crate::transport::inbox::{Inbox, Message};
use crate::worker::scratch::WorkerScratch;

pub(crate) struct Worker {
    number: usize,
    poll: Poll,
    inbox: Arc<Inbox>,
    pub(crate) driver: Arc<Driver>,
    pub(super) peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    ready: FairQueue<IpAddr, usize>,
    last_address: Option<IpAddr>,
    /// When another address had the turn than before.
    shared_at: Option<Instant>,
    /// Time of verify batches, which is charged to the owners of their calls.
    batch_time: Duration,
    /// Connections that `qos=` holds back, by the time when they go on.
    held: BinaryHeap<Reverse<(u64, usize)>>,
    handshakes: HandshakeQueue,
    pub(crate) scratch: WorkerScratch,
    draining: bool,
}

impl Worker {
    pub(crate) fn new(number: usize, poll: Poll, driver: Arc<Driver>) -> Self {
        let record_len_max = driver.record_len_max;
        let scratch = WorkerScratch::new(record_len_max);
        let inbox = driver.inboxes[number].clone();
        Worker {
            number,
            poll,
            inbox,
            driver,
            peers: Vec::new(),
            free: Vec::new(),
            ready: FairQueue::default(),
            last_address: None,
            shared_at: None,
            batch_time: Duration::ZERO,
            held: BinaryHeap::new(),
            handshakes: HandshakeQueue::default(),
            scratch,
            draining: false,
        }
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut tick_at = Instant::now() + TICK;
        let mut drain_until = None;
        loop {
            let blocking = if self.ready.is_empty() {
                self.until_held(self.handshakes.due(tick_at))
            } else {
                Duration::ZERO
            };
            match self.poll.poll(&mut events, Some(blocking)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut is_busy = !self.ready.is_empty();
            for event in &events {
                is_busy |= self.take_event(event);
            }
            for message in self.inbox.take() {
                self.receive(message);
            }
            self.end_holds();
            self.run_round();
            self.process_verify_batch();
            self.scratch.seal();
            self.run_handshakes(is_busy);
            if Instant::now() >= tick_at {
                tick_at = Instant::now() + TICK;
                self.expire();
            }
            if self.driver.stop.load(Ordering::Acquire) {
                let until = *drain_until
                    .get_or_insert_with(|| Instant::now() + self.driver.limits.drain_max);
                tick_at = Instant::now() + DRAIN_STEP;
                if self.drain(Instant::now() >= until) {
                    return Ok(());
                }
            }
        }
    }

    fn take_event(&mut self, event: &Event) -> bool {
        let Token(token) = event.token();
        if token == WAKE.0 {
            return false;
        }
        let Some(Some(peer)) = self.peers.get_mut(token) else { return false };
        let is_busy = !matches!(peer.tls, PeerTls::Handshake(_));
        let closed = event.is_read_closed() || event.is_error();
        peer.read_closed |= closed;
        peer.readable |= event.is_readable() || closed;
        if event.is_writable() {
            let scratch = &mut self.scratch;
            peer.connection.writable(|bytes| scratch.spare.give_back(bytes));
        }
        self.queue(token);
        is_busy
    }

    fn drain(&mut self, is_late: bool) -> bool {
        self.draining = true;
        for slot in 0..self.peers.len() {
            let is_done =
                |peer: &Peer| peer.connection.has_delivered_all() || peer.connection.has_failed();
            if self.peers[slot].as_ref().is_some_and(|peer| is_late || is_done(peer)) {
                self.close(slot, CloseReason::Shutdown);
            }
        }
        self.peers.iter().all(Option::is_none)
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Accepted(socket, address) => {
                if self.admit(socket, address, Side::Client).is_none() {
                    self.driver.traffic.addresses.leave(address.ip());
                    self.driver.open[self.number].fetch_sub(1, Ordering::Relaxed);
                }
            }
            Message::Connected(socket, address, mut callbacks) => {
                self.driver.open[self.number].fetch_add(1, Ordering::Relaxed);
                let connection = self.admit(socket, address, Side::Callback);
                match &connection {
                    Some(connection) => callbacks.extend(
                        self.driver.callback_dialers.connected(address, connection.engine().id()),
                    ),
                    None => {
                        self.driver.open[self.number].fetch_sub(1, Ordering::Relaxed);
                    }
                }
                for callback in callbacks {
                    let sent = connection.as_ref().is_some_and(|c| {
                        c.call_back(callback.id, callback.xid, callback.record, callback.due_ms)
                    });
                    if !sent {
                        self.driver.unanswered([callback.id]);
                    }
                }
            }
            Message::ReplyDurable(connection, outgoing) => {
                self.scratch.push_durable(&connection, outgoing)
            }
            Message::RoomFreed => {
                for slot in 0..self.peers.len() {
                    if self.peers[slot].as_ref().is_some_and(|peer| peer.behind) {
                        self.queue(slot);
                    }
                }
            }
            Message::Check { slot, id } => {
                if self
                    .peers
                    .get(slot)
                    .and_then(Option::as_ref)
                    .is_some_and(|peer| peer.connection.engine().id() == id)
                {
                    self.queue(slot);
                }
            }
        }
    }

    fn admit(
        &mut self,
        socket: TcpStream,
        address: SocketAddr,
        side: Side,
    ) -> Option<Arc<Connection>> {
        if self.draining {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        // Edge-triggered: an event for writing follows only a full socket.
        let fd = socket.as_raw_fd();
        let registered = self.poll.registry().register(
            &mut SourceFd(&fd),
            Token(slot),
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(error) = registered {
            tracing::warn!(%error, "a connection cannot be registered with epoll; closing it");
            self.free.push(slot);
            return None;
        }
        if side == Side::Client {
            self.driver.hosts.connection_opened(address.ip());
        }
        let engine = self.driver.engine.connection_opened(address);
        let id = engine.id();
        let shares = self.driver.quotas.of(address.ip());
        let right = self.driver.right.clone();
        let connection = Arc::new(Connection::new(
            socket,
            side,
            engine,
            self.inbox.clone(),
            slot,
            shares.clone(),
            right,
        ));
        self.driver.connections.lock().insert(id, connection.clone());
        self.peers[slot] = Some(Peer::new(connection.clone(), slot, shares));
        self.queue(slot);
        Some(connection)
    }

    /// Each waiting connection gets a turn at most, so that new events are seen soon.
    fn run_round(&mut self) {
        let began = Instant::now();
        let mut at = began;
        for _ in 0..self.ready.len() {
            let Some((address, slot)) = self.ready.next(|_| true) else { break };
            if self.last_address.replace(address).is_some_and(|last| last != address) {
                self.shared_at = Some(at);
            }
            let quantum = self.quantum(at);
            self.scratch.part_len_max = if quantum == QUANTUM { PART_LEN_MAX } else { usize::MAX };
            let Some(Some(peer)) = self.peers.get_mut(slot) else { continue };
            peer.queued = false;
            peer.turn_ends = at + quantum;
            let shares = peer.connection.shares().clone();
            self.batch_time = Duration::ZERO;
            self.turn(slot);
            let now = Instant::now();
            let took = now.saturating_duration_since(at).saturating_sub(self.batch_time);
            self.ready.charge_with_others(address, took.min(TURN_MAX), &shares.worked_ns);
            at = now;
            if at.saturating_duration_since(began) > quantum {
                break;
            }
        }
    }

    /// Turns are short if other addresses had work lately.
    fn quantum(&self, now: Instant) -> Duration {
        let is_recent = |at| now.saturating_duration_since(at) < SHARED_FOR;
        if self.shared_at.is_some_and(is_recent) { QUANTUM } else { QUANTUM_ALONE }
    }

    pub(super) fn charge(&mut self, slot: usize, took: Duration) {
        if let Some(Some(peer)) = self.peers.get(slot) {
            self.batch_time += took;
            let (address, shares) = (peer.connection.peer().ip(), peer.connection.shares());
            self.ready.charge_with_others(quota_address(address), took, &shares.worked_ns);
        }
    }

    fn until_held(&self, tick_at: Instant) -> Duration {
        let left = tick_at.saturating_duration_since(Instant::now());
        match self.held.peek() {
            Some(Reverse((at_ns, _))) => {
                left.min(Duration::from_nanos(at_ns.saturating_sub(clock::mono_ns())))
            }
            None => left,
        }
    }

    fn end_holds(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let now_ns = clock::mono_ns();
        while let Some(&Reverse((at_ns, slot))) = self.held.peek()
            && at_ns <= now_ns
        {
            self.held.pop();
            // A new connection may have the slot: one turn in vain.
            self.queue(slot);
        }
    }

    fn turn(&mut self, slot: usize) {
        let Some(Some(peer)) = self.peers.get_mut(slot) else { return };
        // A client that sends all the time does not delay the end: the next server gets these calls.
        if self.draining {
            return peer.hand_over(&self.driver);
        }
        match peer.turn(&mut self.scratch, &self.driver) {
            TurnEnd::Wait => {}
            TurnEnd::Handshake => self.handshakes.push(slot, peer.connection.engine().id()),
            TurnEnd::Yield => self.queue(slot),
            TurnEnd::Hold(until_ns) => {
                if peer.hold_timer_ns != until_ns {
                    peer.hold_timer_ns = until_ns;
                    self.held.push(Reverse((until_ns, slot)));
                }
            }
            TurnEnd::VerifyBatch => {
                self.process_verify_batch();
                self.queue(slot);
            }
            TurnEnd::Close(why) => {
                self.process_verify_batch();
                self.close(slot, why);
            }
        }
    }

    /// Steps of handshakes cost up to a thousand times as much as a small call: other clients get
    /// at least half of the time.
    fn run_handshakes(&mut self, is_busy: bool) {
        let mut left = if is_busy { 1 } else { HANDSHAKES_AT_ONCE };
        while left > 0
            && let Some((slot, id)) = self.handshakes.take()
        {
            let Some(Some(peer)) = self.peers.get_mut(slot) else { continue };
            if peer.connection.engine().id() != id {
                continue;
            }
            left -= 1;
            let began = Instant::now();
            let end = peer.handshake(&self.driver);
            self.handshakes.add_time(began.elapsed(), is_busy);
            match end {
                TurnEnd::Handshake => self.handshakes.push(slot, id),
                TurnEnd::Close(why) => self.close(slot, why),
                TurnEnd::Yield => self.queue(slot),
                TurnEnd::Wait | TurnEnd::Hold(_) | TurnEnd::VerifyBatch => {}
            }
        }
    }

    pub(super) fn queue(&mut self, slot: usize) {
        if let Some(Some(peer)) = self.peers.get_mut(slot)
            && !peer.queued
        {
            peer.queued = true;
            let weight = peer.connection.qos().weight();
            self.ready.push(quota_address(peer.connection.peer().ip()), weight, slot);
        }
    }

    pub(super) fn close(&mut self, slot: usize, why: CloseReason) {
        self.scratch.seal();
        let Some(mut peer) = self.peers[slot].take() else { return };
        peer.hand_over(&self.driver);
        let connection = peer.connection;
        let id = connection.engine().id();
        let fd = connection.socket().as_raw_fd();
        // The kernel may have removed the socket already.
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
        connection.shut_down();
        self.driver.connections.lock().remove(&id);
        self.free.push(slot);
        self.driver.open[self.number].fetch_sub(1, Ordering::Relaxed);
        let traffic = &self.driver.traffic;
        traffic.closed.add(1);
        traffic.closed_broken.add(u64::from(matches!(
            why,
            CloseReason::ProtocolError | CloseReason::ReplayDropped | CloseReason::Tls
        )));
        traffic.closed_slow.add(u64::from(why == CloseReason::TimedOut));
        traffic.sent_len.add(connection.sent_len());
        match connection.side() {
            Side::Client => {
                traffic.addresses.leave(connection.peer().ip());
                self.driver.hosts.connection_closed(connection.peer().ip());
            }
            Side::Callback => self.driver.callback_dialers.closed(connection.peer(), id),
        }
        let effects = self.driver.engine.connection_closed(connection.engine(), clock::now());
        self.driver.apply(effects);
        self.driver.unanswered(connection.take_unanswered(None));
    }

    fn expire(&mut self) {
        let now_ms = clock::mono_ms();
        let stall_ms = u64::try_from(self.driver.limits.stall_max.as_millis()).unwrap_or(u64::MAX);
        for slot in 0..self.peers.len() {
            let Some(peer) = &self.peers[slot] else { continue };
            self.driver.unanswered(peer.connection.take_unanswered(Some(now_ms)));
            if let PeerTls::Handshake(progress) = &peer.tls
                && now_ms.saturating_sub(progress.began_ms)
                    > stall_ms.min(HANDSHAKE_MAX.as_millis() as u64)
            {
                self.driver.refuse_tls(&peer.connection, "the handshake takes too long");
                self.close(slot, CloseReason::TimedOut);
                continue;
            }
            let began = peer.record_began_ms.map_or(0, |began| now_ms.saturating_sub(began));
            if began.max(peer.connection.full_for_ms(now_ms)) > stall_ms {
                tracing::info!(peer = %peer.connection.peer(), "the peer neither completes its request nor takes its replies; closing the connection");
                self.close(slot, CloseReason::TimedOut);
            } else if peer.behind {
                self.queue(slot);
            }
        }
        self.process_verify_batch();
        self.scratch.seal();
    }
}

pub(crate) const WAKE: Token = Token(usize::MAX);

/// In a longer turn the thread had to wait for the processor, as with a CPU quota: calls that block run on
/// other threads.
const TURN_MAX: Duration = Duration::from_millis(2);

/// Longest turn beside other addresses, and time until new events are seen: some ten short calls, so
/// that their replies still leave together.
const QUANTUM: Duration = Duration::from_micros(25);

/// Receiving or writing it takes less than such a turn.
const PART_LEN_MAX: usize = 32 * 1024;

/// A call of another address waits for it.
const QUANTUM_ALONE: Duration = Duration::from_micros(500);

/// A client that sends a call now and then meets no long turn.
const SHARED_FOR: Duration = Duration::from_millis(200);

const DRAIN_STEP: Duration = Duration::from_millis(50);
