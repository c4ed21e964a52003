//! One serving thread: its connections and whose turn it is. Joins sockets to the engine: reads,
//! has calls run, gathers replies and sends them together. Decides nothing about calls.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use vouch_audit::record::Refusal;
use vouch_nfs4_server::{Now, Progress};
use vouch_vfs::Patience;

use super::audit::Refused;
use super::call::{self, Incoming, LastCredential};
use super::clock;
use super::connection::{Connection, Side};
use super::driver::Driver;
use super::gss::{self, Recent};
use super::inbox::{Inbox, Message};
use super::limits::{FLUSH_LEN, TICK, TURN_READS_MAX};
use super::output::Outgoing;
use super::receive::{Batch, Input, Look, Read, Record};
use super::shares::Charge;
use super::together::Looked;
use super::tools::Tools;

/// One thread's state.
pub(super) struct Worker {
    number: usize,
    poll: Poll,
    inbox: Arc<Inbox>,
    pub(super) driver: Arc<Driver>,
    pub(super) peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Peers that have more to do without any news from the system.
    again: VecDeque<usize>,
    pub(super) tools: Tools,
    draining: bool,
}

/// A connection and what has come on it.
pub(super) struct Peer {
    pub(super) connection: Arc<Connection>,
    input: Input,
    last_credential: LastCredential,
    pub(super) recent: Recent,
    /// Where it is among the thread's peers.
    pub(super) slot: usize,
    /// Calls of it are among those that are checked together, and not taken up yet.
    pub(super) gathered: bool,
    /// Input may be waiting in the socket.
    readable: bool,
    /// The peer has closed its half: a short read does not mean that the end has been seen.
    read_closed: bool,
    /// Input is waiting here that could not be taken up yet.
    behind: bool,
    /// It asked for a context when many waited for theirs.
    asks_contexts: bool,
    /// In the queue for another turn.
    queued: bool,
    /// Since when a record is incomplete.
    began_ms: Option<u64>,
}

enum TurnEnd {
    /// Nothing to do before there is news.
    Wait,
    /// There is more to do, but others have their turn first.
    Again,
    /// There is more to do, when what was gathered has been taken up.
    Together,
    Close(Why),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Peer,
    Broken,
    Dropped,
    Slow,
    Stop,
}

impl Worker {
    /// A thread's state. The inbox is the driver's of this number.
    pub(super) fn new(number: usize, poll: Poll, driver: Arc<Driver>) -> Self {
        let record_len_max = driver.record_len_max;
        let tools = Tools::new(record_len_max);
        let inbox = driver.inboxes[number].clone();
        Worker { number, poll, inbox, driver, peers: Vec::new(), free: Vec::new(), again: VecDeque::new(), tools, draining: false }
    }

    /// Serves until the driver stops and replies under way have left.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut tick_at = Instant::now() + TICK;
        let mut drain_until = None;
        loop {
            let patience =
                if self.again.is_empty() { tick_at.saturating_duration_since(Instant::now()) } else { std::time::Duration::ZERO };
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                let Token(token) = event.token();
                if token == WAKE.0 {
                    continue;
                }
                if let Some(Some(peer)) = self.peers.get_mut(token) {
                    let closed = event.is_read_closed() || event.is_error();
                    peer.read_closed |= closed;
                    peer.readable |= event.is_readable() || closed;
                    if event.is_writable() {
                        let tools = &mut self.tools;
                        peer.connection.writable(|bytes| tools.spare.keep(bytes));
                    }
                    self.turn(token);
                }
            }
            for message in self.inbox.take() {
                self.hear(message);
            }
            for _ in 0..self.again.len() {
                if let Some(slot) = self.again.pop_front()
                    && let Some(Some(peer)) = self.peers.get_mut(slot)
                {
                    peer.queued = false;
                    self.turn(slot);
                }
            }
            self.take_gathered();
            self.tools.seal();
            if Instant::now() >= tick_at {
                tick_at = Instant::now() + TICK;
                self.expire();
            }
            if self.driver.stop.load(Ordering::Acquire) {
                self.draining = true;
                let until = *drain_until.get_or_insert_with(|| Instant::now() + self.driver.limits.drain_max);
                tick_at = Instant::now() + DRAIN_STEP;
                let late = Instant::now() >= until;
                for slot in 0..self.peers.len() {
                    if self.peers[slot].as_ref().is_some_and(|peer| late || peer.connection.is_quiet()) {
                        self.close(slot, Why::Stop);
                    }
                }
                if self.peers.iter().all(Option::is_none) {
                    return Ok(());
                }
            }
        }
    }

    fn hear(&mut self, message: Message) {
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
                    Some(connection) => callbacks.extend(self.driver.diallers.connected(address, connection.engine().id())),
                    None => {
                        self.driver.open[self.number].fetch_sub(1, Ordering::Relaxed);
                    }
                }
                for callback in callbacks {
                    let sent =
                        connection.as_ref().is_some_and(|c| c.call_back(callback.id, callback.xid, callback.record, callback.due_ms));
                    if !sent {
                        self.driver.unanswered([callback.id]);
                    }
                }
            }
            Message::Kept(connection, outgoing) => self.tools.take_kept(&connection, outgoing),
            Message::LookBehind => {
                for slot in 0..self.peers.len() {
                    if self.peers[slot].as_ref().is_some_and(|peer| peer.behind) {
                        self.turn(slot);
                    }
                }
            }
            Message::Look { slot, id } => {
                if self.peers.get(slot).and_then(Option::as_ref).is_some_and(|peer| peer.connection.engine().id() == id) {
                    self.turn(slot);
                }
            }
        }
    }

    fn admit(&mut self, socket: TcpStream, address: SocketAddr, side: Side) -> Option<Arc<Connection>> {
        if self.draining {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        // Edge-triggered and once for all: of room for output we hear only after there was none.
        let fd = socket.as_raw_fd();
        let registered = self.poll.registry().register(&mut SourceFd(&fd), Token(slot), Interest::READABLE | Interest::WRITABLE);
        if let Err(error) = registered {
            tracing::warn!(%error, "a connection can't be watched and is closed");
            self.free.push(slot);
            return None;
        }
        if side == Side::Client {
            self.driver.hosts.arrive(address.ip());
        }
        let engine = self.driver.engine.connection_opened(address);
        let id = engine.id();
        let shares = self.driver.shares.of(address.ip());
        let connection = Arc::new(Connection::new(socket, side, engine, self.inbox.clone(), slot, shares.clone()));
        self.driver.connections.lock().insert(id, connection.clone());
        self.peers[slot] = Some(Peer {
            connection: connection.clone(),
            input: Input::new(Charge::new(shares)),
            last_credential: LastCredential::default(),
            recent: Recent::default(),
            slot,
            gathered: false,
            readable: true,
            read_closed: false,
            behind: false,
            asks_contexts: false,
            queued: false,
            began_ms: None,
        });
        self.turn(slot);
        Some(connection)
    }

    /// Lets a peer go on as far as it can and may.
    fn turn(&mut self, slot: usize) {
        let Some(Some(peer)) = self.peers.get_mut(slot) else { return };
        match peer.turn(&mut self.tools, &self.driver) {
            TurnEnd::Wait => {}
            TurnEnd::Again => self.queue(slot),
            TurnEnd::Together => {
                self.take_gathered();
                self.queue(slot);
            }
            TurnEnd::Close(why) => {
                // What came before the end is served.
                self.take_gathered();
                self.close(slot, why);
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

    pub(super) fn close(&mut self, slot: usize, why: Why) {
        // Calls that were done before the one that ends the connection have their replies.
        self.tools.seal();
        let Some(Peer { connection, .. }) = self.peers[slot].take() else { return };
        let id = connection.engine().id();
        let fd = connection.socket().as_raw_fd();
        // It may have gone from the set by itself.
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
        connection.shut();
        self.driver.connections.lock().remove(&id);
        self.free.push(slot);
        self.driver.open[self.number].fetch_sub(1, Ordering::Relaxed);
        let traffic = &self.driver.traffic;
        traffic.closed.add(1);
        traffic.closed_broken.add(u64::from(matches!(why, Why::Broken | Why::Dropped)));
        traffic.closed_slow.add(u64::from(why == Why::Slow));
        traffic.sent_len.add(connection.sent_len());
        match connection.side() {
            Side::Client => {
                traffic.addresses.leave(connection.peer().ip());
                self.driver.hosts.leave(connection.peer().ip());
            }
            Side::Callback => self.driver.diallers.closed(connection.peer(), id),
        }
        let effects = self.driver.engine.connection_closed(connection.engine(), clock::now());
        self.driver.carry_alone(effects);
        self.driver.unanswered(connection.unanswered(None));
    }

    /// Closes those that were too slow, and gives up callbacks that are late. O(n) in this thread's
    /// connections.
    fn expire(&mut self) {
        let now_ms = clock::mono_ms();
        let stall_ms = u64::try_from(self.driver.limits.stall_max.as_millis()).unwrap_or(u64::MAX);
        for slot in 0..self.peers.len() {
            let Some(peer) = &self.peers[slot] else { continue };
            self.driver.unanswered(peer.connection.unanswered(Some(now_ms)));
            let began = peer.began_ms.map_or(0, |began| now_ms.saturating_sub(began));
            if began.max(peer.connection.full_for_ms(now_ms)) > stall_ms {
                tracing::info!(peer = %peer.connection.peer(), "a peer neither sends nor takes what it began; its connection is closed");
                self.close(slot, Why::Slow);
            } else if peer.behind {
                // What it waits for may be the whole server's, of which no message tells.
                self.turn(slot);
            }
        }
        self.take_gathered();
        self.tools.seal();
    }
}

impl Peer {
    fn turn(&mut self, tools: &mut Tools, driver: &Arc<Driver>) -> TurnEnd {
        let mut reads = 0;
        loop {
            if self.connection.has_failed() {
                return TurnEnd::Close(Why::Peer);
            }
            if (self.behind || self.readable) && (self.connection.pause() || self.is_crowded_out(driver)) {
                self.behind |= self.readable;
                return TurnEnd::Wait;
            }
            let resumed = if self.behind { self.input.resume() } else { None };
            self.behind = false;
            let batch = match resumed {
                Some(batch) => batch,
                None if !self.readable => return TurnEnd::Wait,
                None if reads == TURN_READS_MAX => return TurnEnd::Again,
                None if !self.input.may_read(&tools.buffers) => {
                    // That it does not come to its end is not its fault.
                    (self.behind, self.began_ms) = (true, None);
                    return TurnEnd::Wait;
                }
                None => {
                    reads += 1;
                    match self.input.read(self.connection.socket().as_fd(), &mut tools.buffers) {
                        Ok(Read::Some { fresh, more, len }) => {
                            // A read that did not fill what was asked has emptied the socket (epoll(7)); what comes later is
                            // news.
                            self.readable = more || self.read_closed;
                            driver.traffic.received_len.add(len as u64);
                            match self.look(fresh, tools, driver) {
                                Looked::Now(batch) => batch,
                                Looked::Later => continue,
                                Looked::Together => return TurnEnd::Together,
                            }
                        }
                        Ok(Read::Empty) => {
                            self.readable = false;
                            return TurnEnd::Wait;
                        }
                        Ok(Read::Closed) | Err(_) => return TurnEnd::Close(Why::Peer),
                    }
                }
            };
            if let Err(why) = self.take_up(batch, tools, driver) {
                return TurnEnd::Close(why);
            }
        }
    }

    /// Whether so much waits, of this connection or its address too, that no more of its calls
    /// should be taken up. Others go on: their leases would end otherwise.
    fn is_crowded_out(&mut self, driver: &Driver) -> bool {
        let origin = self.connection.origin();
        self.asks_contexts = self.asks_contexts && driver.gss.as_ref().is_some_and(|gss| gss.is_crowded(origin));
        let crowded = driver.pool.is_crowded(origin) || driver.names.is_crowded(origin);
        self.asks_contexts || crowded && self.connection.has_waiting() || !self.connection.may_wait(driver.record_len_max)
    }

    /// Has the calls of a batch run, as many as may be.
    pub(super) fn take_up(&mut self, mut batch: Batch, tools: &mut Tools, driver: &Arc<Driver>) -> Result<(), Why> {
        let now = clock::now();
        let mut calls = 0;
        let mut half_len = batch.left_len() / 2;
        let result = loop {
            let record = match self.input.next(&mut batch, tools.record_len_max) {
                Ok(Some(record)) => record,
                Ok(None) => break Ok(()),
                Err(error) => {
                    tracing::info!(peer = %self.connection.peer(), %error, "a peer sends what is no RPC; its connection is closed");
                    break Err(Why::Broken);
                }
            };
            calls += 1;
            if let Err(why) = self.one(record, now, tools, driver) {
                match why {
                    Why::Dropped => {
                        tracing::info!(peer = %self.connection.peer(), "a call under RPCSEC_GSS came twice or too late; its connection is closed")
                    }
                    _ => tracing::info!(peer = %self.connection.peer(), "a peer sends records that are no calls; its connection is closed"),
                }
                break Err(why);
            }
            if tools.ready_len >= FLUSH_LEN {
                tools.flush(&self.connection);
            }
            if !batch.is_empty() && batch.left_len() <= half_len && tools.is_worth_sending() {
                half_len = 0;
                tools.send_if_awaited(&self.connection);
            }
            if !batch.is_empty()
                && (self.is_crowded_out(driver)
                    || (calls % LOOK_ROUND == 0 || (tools.ready.is_empty() && tools.unsealed.is_empty())) && self.connection.pause())
            {
                self.behind = true;
                break Ok(());
            }
        };
        driver.traffic.calls.add(calls);
        self.input.put_back(batch, &mut tools.buffers);
        tools.flush(&self.connection);
        self.began_ms = match self.began_ms {
            // A record that ended since has been replaced by another.
            Some(began) if calls == 0 => Some(began),
            _ if self.input.is_inside_record() && !self.behind => Some(now.mono_ms),
            _ => None,
        };
        result
    }

    fn one(&mut self, record: Record, now: Now, tools: &mut Tools, driver: &Arc<Driver>) -> Result<(), Why> {
        let connection = &self.connection;
        let Record { mut bytes, look } = record;
        if connection.side() == Side::Callback && bytes.get(4..8) != Some(&[0, 0, 0, 1]) {
            let refusal = call::refuse(&bytes, tools.reply(connection)).ok_or(Why::Broken)?;
            tools.push(Outgoing::bytes(refusal));
            return Ok(());
        }
        let protected = match look {
            Look::Taken(protected) => protected,
            Look::Missing => {
                let mut own = bytes::BytesMut::from(bytes);
                let protected = gss::look_alone(&mut own, driver.gss.as_ref(), &mut self.recent, clock::boot_ms());
                bytes = own.freeze();
                protected
            }
        };
        if let (Some(protected), Some(audit)) = (&protected, &driver.audit) {
            protected.record_refusal(audit, connection.engine());
        }
        let incoming = match protected {
            Some(protected) => call::read_protected(&bytes, protected, connection.engine(), tools.reply(connection), clock::boot_ms()),
            None => call::read(bytes, connection.engine(), &mut self.last_credential, tools.reply(connection)),
        };
        match incoming {
            Incoming::Compound(request, envelope) => {
                let mut compound = driver.engine.begin(request, now);
                match compound.run(&driver.engine, Patience::None) {
                    Progress::Done(reply) => {
                        if let Some(outgoing) = driver.carry(&mut compound, connection, reply, false, envelope) {
                            tools.push_for(connection, outgoing);
                        }
                    }
                    Progress::Blocked => {
                        // What is answered already goes first: a reply that is overtaken by later ones looks as old as it
                        // is to a client that compares.
                        tools.flush(connection);
                        driver.run_waiting(connection.clone(), compound, envelope);
                    }
                }
            }
            Incoming::Sealed(bytes, envelope) => tools.push_for(connection, Outgoing::unmarked(bytes, Some(envelope))),
            Incoming::Destroyed(bytes, envelope, context) => {
                driver.gss.iter().for_each(|gss| gss.destroy(&context));
                tools.push_for(connection, Outgoing::unmarked(bytes, Some(envelope)));
            }
            Incoming::Init(init) => {
                let gss = driver.gss.as_ref().ok_or(Why::Broken)?;
                gss.init(init, connection, driver.audit.as_ref());
                self.asks_contexts = gss.is_crowded(connection.origin());
            }
            Incoming::Denied(bytes, flavour, detail) => {
                let refused = Refused { flavour, detail, ..Refused::of(Refusal::Authentication, connection.engine()) };
                driver.audit.iter().for_each(|audit| audit.refuse(&refused));
                tools.push(Outgoing::bytes(bytes));
            }
            Incoming::Answer(bytes) => tools.push(Outgoing::bytes(bytes)),
            Incoming::CallbackReply(xid, record) if connection.calls_back() => driver.answered(connection, xid, &record),
            Incoming::CallbackReply(..) | Incoming::Broken => return Err(Why::Broken),
            Incoming::Dropped => return Err(Why::Dropped),
        }
        Ok(())
    }
}

/// The inbox's token in a worker's set.
pub(super) const WAKE: Token = Token(usize::MAX);

/// After so many calls a batch looks whether the connection is laden.
const LOOK_ROUND: u64 = 16;

/// While draining, how often to see whether it is done.
const DRAIN_STEP: std::time::Duration = std::time::Duration::from_millis(50);
