use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
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
use crate::limits::{HANDSHAKE_MAX, HANDSHAKES_AT_ONCE, TICK};
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
    again: VecDeque<usize>,
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
            again: VecDeque::new(),
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
            let blocking = if self.again.is_empty() {
                self.handshakes.due(tick_at).saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            match self.poll.poll(&mut events, Some(blocking)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut is_busy = !self.again.is_empty();
            for event in &events {
                is_busy |= self.take_event(event);
            }
            for message in self.inbox.take() {
                self.receive(message);
            }
            for _ in 0..self.again.len() {
                if let Some(slot) = self.again.pop_front()
                    && let Some(Some(peer)) = self.peers.get_mut(slot)
                {
                    peer.queued = false;
                    self.turn(slot);
                }
            }
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
        self.turn(token);
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
                        self.turn(slot);
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
                    self.turn(slot);
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
        self.turn(slot);
        Some(connection)
    }

    fn turn(&mut self, slot: usize) {
        // A client that sends all the time does not delay the end: the next server gets these calls.
        if self.draining {
            return;
        }
        let Some(Some(peer)) = self.peers.get_mut(slot) else { return };
        match peer.turn(&mut self.scratch, &self.driver) {
            TurnEnd::Wait => {}
            TurnEnd::Handshake => self.handshakes.push(slot, peer.connection.engine().id()),
            TurnEnd::Yield => self.queue(slot),
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
                TurnEnd::Wait | TurnEnd::VerifyBatch => {}
            }
        }
    }

    fn queue(&mut self, slot: usize) {
        if let Some(Some(peer)) = self.peers.get_mut(slot)
            && !peer.queued
        {
            peer.queued = true;
            self.again.push_back(slot);
        }
    }

    pub(super) fn close(&mut self, slot: usize, why: CloseReason) {
        self.scratch.seal();
        let Some(Peer { connection, .. }) = self.peers[slot].take() else { return };
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
                self.turn(slot);
            }
        }
        self.process_verify_batch();
        self.scratch.seal();
    }
}

pub(crate) const WAKE: Token = Token(usize::MAX);

const DRAIN_STEP: Duration = Duration::from_millis(50);
