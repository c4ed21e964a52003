//! Requests, transfers by chunks, and failures, in the order of their time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use vouch_tree_client::TransportError;

use crate::cache::{Answer, CacheContent, Entry, Key, Response};
use crate::link::{
    CHUNK, Link, Micros, RETRANSMISSION_TIMEOUT, Random, TransferId, packets, slow_start,
};
use crate::network::{NetworkOptions, Traffic};
use crate::release::WebFiles;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    pub(crate) node: u32,
    /// `None`: the origin.
    pub(crate) cache: Option<usize>,
    pub(crate) key: Key,
    pub(crate) path: Arc<str>,
}

pub(crate) struct Pending {
    pub(crate) request: Request,
    pub(crate) connect_timeout: Duration,
    pub(crate) is_connected: bool,
    pub(crate) reply: oneshot::Sender<Result<Response, TransportError>>,
}

/// 0 is the origin, `n + 1` cache `n`.
type ServerId = usize;

const ORIGIN: ServerId = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Receiver {
    Node(u32),
    Cache(ServerId),
}

struct Server {
    link: Link,
    busy_until: Micros,
    content: CacheContent,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Refuses,
    Silent,
}

type BodySender = UnboundedSender<Result<Bytes, TransportError>>;

struct Transfer {
    from: ServerId,
    to: Receiver,
    request: Request,
    /// Until the header arrives.
    reply: Option<oneshot::Sender<Result<Response, TransportError>>>,
    /// From then on.
    body: Option<BodySender>,
    answer: Answer,
    /// Fewer than all while a cache receives them itself.
    available: u64,
    sent: u64,
    received: u64,
    has_turn: bool,
    start: Micros,
    last_arrival: Micros,
}

enum Event {
    Arrive(Pending),
    Fetch(ServerId, Request),
    LinkFree(ServerId),
    ChunkArrives(TransferId, u64),
    Refuse(Pending, &'static str),
    Break(BodySender, &'static str),
    Change(ServerId, State),
}

pub(crate) struct Events {
    options: NetworkOptions,
    files: Arc<WebFiles>,
    servers: Vec<Server>,
    queue: BTreeMap<(Micros, u64), Event>,
    sequence: u64,
    arrivals: Vec<(Micros, Pending)>,
    transfers: BTreeMap<TransferId, Transfer>,
    connections: BTreeMap<(Receiver, ServerId), u32>,
    /// A link's receiving side is free then.
    receivers: BTreeMap<Receiver, Micros>,
    random: Random,
    traffic: Traffic,
}

impl Events {
    pub(crate) fn new(options: NetworkOptions, files: Arc<WebFiles>, seed: u64) -> Self {
        let server = |bandwidth| Server {
            link: Link::new(bandwidth),
            busy_until: 0,
            content: CacheContent::default(),
            state: State::Up,
        };
        let mut servers = vec![server(options.origin_bandwidth)];
        servers.extend((0..options.caches).map(|cache| server(options.cache_bandwidth(cache))));
        Self {
            options,
            files,
            servers,
            queue: BTreeMap::new(),
            sequence: 0,
            arrivals: Vec::new(),
            transfers: BTreeMap::new(),
            connections: BTreeMap::new(),
            receivers: BTreeMap::new(),
            random: Random(seed),
            traffic: Traffic::default(),
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(crate) fn release(&mut self, now: Micros, files: Arc<WebFiles>) {
        self.files = files;
        self.traffic = Traffic::default();
        for failure in self.options.failures.clone() {
            let state = if failure.is_silent { State::Silent } else { State::Refuses };
            self.push(now + micros(failure.at), Event::Change(failure.cache + 1, state));
            self.push(
                now + micros(failure.at + failure.lasts),
                Event::Change(failure.cache + 1, State::Up),
            );
        }
    }

    pub(crate) fn next(&self) -> Option<Micros> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn request(&mut self, now: Micros, pending: Pending) {
        self.arrivals.push((now, pending));
    }

    pub(crate) fn advance(&mut self, now: Micros) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.sort_by(|a, b| (a.0, &a.1.request).cmp(&(b.0, &b.1.request)));
        for (at, mut pending) in arrivals {
            let server = pending.request.cache.map_or(ORIGIN, |cache| cache + 1);
            let client = Receiver::Node(pending.request.node);
            pending.is_connected =
                self.connections.get(&(client, server)).is_some_and(|idle| *idle > 0);
            let at = at + self.way(client, server);
            self.push(at, Event::Arrive(pending));
        }
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), event) = entry.remove_entry();
            self.handle(at, event);
        }
    }

    fn push(&mut self, at: Micros, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    fn rtt(&self, receiver: Receiver, server: ServerId) -> Micros {
        let is_near = server != ORIGIN && matches!(receiver, Receiver::Node(_));
        micros(if is_near { self.options.cache_rtt } else { self.options.origin_rtt })
    }

    fn way(&mut self, client: Receiver, server: ServerId) -> Micros {
        let rtt = self.rtt(client, server);
        let idle = self.connections.entry((client, server)).or_default();
        let handshake = if *idle > 0 {
            *idle -= 1;
            0
        } else {
            rtt
        };
        let lost = if self.random.loses(self.options.loss, 1) { RETRANSMISSION_TIMEOUT } else { 0 };
        handshake + lost + rtt / 2
    }

    fn handle(&mut self, now: Micros, event: Event) {
        match event {
            Event::Arrive(pending) => self.arrive(now, pending),
            Event::Fetch(cache, request) => self.fetch(now, cache, request),
            Event::LinkFree(server) => {
                self.servers[server].link.is_busy = false;
                self.send(now, server);
            }
            Event::ChunkArrives(transfer, len) => self.receive(now, transfer, len),
            Event::Refuse(pending, why) => drop(pending.reply.send(Err(why.into()))),
            Event::Break(body, why) => drop(body.send(Err(why.into()))),
            Event::Change(server, state) => self.change(now, server, state),
        }
    }

    fn serve(&mut self, now: Micros, server: ServerId) -> Micros {
        let server = &mut self.servers[server];
        server.busy_until =
            server.busy_until.max(now) + (1e6 / self.options.requests_per_s) as Micros;
        server.busy_until
    }

    fn arrive(&mut self, now: Micros, pending: Pending) {
        let server = pending.request.cache.map_or(ORIGIN, |cache| cache + 1);
        match self.servers[server].state {
            State::Up => {}
            State::Refuses => {
                let back = self.rtt(Receiver::Node(pending.request.node), server) / 2;
                return self.push(now + back, Event::Refuse(pending, "connection refused"));
            }
            State::Silent => {
                let wait = if pending.is_connected {
                    self.options.timeout
                } else {
                    pending.connect_timeout
                };
                return self.push(now + micros(wait), Event::Refuse(pending, "timed out"));
            }
        }
        if server == ORIGIN {
            self.traffic.origin_requests += 1;
            let answer = answer(&self.files, &pending.request);
            return self.start(
                now,
                ORIGIN,
                Receiver::Node(pending.request.node),
                pending.request,
                Some(pending.reply),
                answer,
                None,
            );
        }
        self.traffic.cache_requests += 1;
        let key = pending.request.key.clone();
        let Some(entry) = self.servers[server].content.entries.get_mut(&key) else {
            let request = pending.request.clone();
            self.servers[server]
                .content
                .entries
                .insert(key, Entry { waiting: vec![pending], ..Entry::default() });
            let at = self.serve(now, server) + self.way(Receiver::Cache(server), ORIGIN);
            return self.push(at, Event::Fetch(server, request));
        };
        self.traffic.cache_hits += 1;
        match entry.answer.clone() {
            None => entry.waiting.push(pending),
            Some(answer) => {
                let received = entry.received;
                self.start(
                    now,
                    server,
                    Receiver::Node(pending.request.node),
                    pending.request,
                    Some(pending.reply),
                    answer,
                    Some(received),
                );
            }
        }
    }

    fn fetch(&mut self, now: Micros, cache: ServerId, request: Request) {
        self.traffic.origin_requests += 1;
        let answer = answer(&self.files, &request);
        self.start(now, ORIGIN, Receiver::Cache(cache), request, None, answer, None);
    }

    /// `available`: bytes that the server has; `None`: all.
    #[allow(clippy::too_many_arguments, reason = "fields of one event")]
    fn start(
        &mut self,
        now: Micros,
        from: ServerId,
        to: Receiver,
        request: Request,
        reply: Option<oneshot::Sender<Result<Response, TransportError>>>,
        answer: Answer,
        available: Option<u64>,
    ) {
        let start = self.serve(now, from);
        self.sequence += 1;
        let (id, len) = (self.sequence, answer.len());
        if let Some(entry) = self.servers[from].content.entries.get_mut(&request.key) {
            entry.readers.push(id);
        }
        let available = available.unwrap_or(len);
        let transfer = Transfer {
            from,
            to,
            request,
            reply,
            body: None,
            answer,
            available,
            sent: 0,
            received: 0,
            has_turn: false,
            start,
            last_arrival: 0,
        };
        self.transfers.insert(id, transfer);
        self.offer(now, id);
    }

    fn offer(&mut self, now: Micros, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        if transfer.has_turn || transfer.sent == transfer.available {
            return;
        }
        transfer.has_turn = true;
        let from = transfer.from;
        self.servers[from].link.turns.push_back(id);
        self.send(now, from);
    }

    fn send(&mut self, now: Micros, server: ServerId) {
        while !self.servers[server].link.is_busy {
            let Some(id) = self.servers[server].link.turns.pop_front() else { return };
            let Some(transfer) = self.transfers.get_mut(&id) else { continue };
            if transfer.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
                || transfer.body.as_ref().is_some_and(BodySender::is_closed)
            {
                self.transfers.remove(&id);
                continue;
            }
            let len = CHUNK.min(transfer.available - transfer.sent);
            let offset = transfer.sent;
            transfer.sent += len;
            transfer.has_turn = transfer.sent < transfer.available;
            let (to, start, is_last, has_turn) = (
                transfer.to,
                transfer.start,
                transfer.sent == transfer.answer.len(),
                transfer.has_turn,
            );
            let link = &mut self.servers[server].link;
            link.is_busy = true;
            let sent = now.max(start) + link.duration(len);
            if has_turn {
                link.turns.push_back(id);
            }
            let arrival = self.arrival(server, to, sent, start, offset, len, is_last);
            self.push(sent, Event::LinkFree(server));
            if let Some(transfer) = self.transfers.get_mut(&id) {
                transfer.last_arrival = transfer.last_arrival.max(arrival);
                let at = transfer.last_arrival;
                self.push(at, Event::ChunkArrives(id, len));
            }
            if server == ORIGIN {
                self.traffic.origin_bytes += len;
            } else {
                self.traffic.cache_bytes += len;
            }
        }
    }

    /// The chunk's last bit leaves at `sent`.
    #[allow(clippy::too_many_arguments, reason = "fields of one event")]
    fn arrival(
        &mut self,
        server: ServerId,
        to: Receiver,
        sent: Micros,
        start: Micros,
        offset: u64,
        len: u64,
        is_last: bool,
    ) -> Micros {
        let rtt = self.rtt(to, server);
        let bandwidth = match to {
            Receiver::Node(_) => self.options.node_bandwidth,
            Receiver::Cache(server) => self.options.cache_bandwidth(server - 1),
        };
        let free = self.receivers.entry(to).or_default();
        *free = (sent + rtt / 2).max(*free + (len as f64 * 1e6 / bandwidth) as Micros);
        let mut arrival = *free;
        if self.options.slow_start {
            arrival = arrival.max(start + rtt / 2 + slow_start(offset + len, rtt, bandwidth));
        }
        if self.random.loses(self.options.loss, packets(len)) {
            arrival += rtt;
        }
        if is_last && self.random.loses(self.options.loss, 1) {
            // No later packet tells the receiver of the loss.
            arrival += RETRANSMISSION_TIMEOUT;
        }
        arrival
    }

    fn receive(&mut self, now: Micros, id: TransferId, len: u64) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.deliver(len);
        let (received, is_whole) = (transfer.received, transfer.received == transfer.answer.len());
        if let Receiver::Cache(cache) = transfer.to {
            let (request, answer) = (transfer.request.clone(), transfer.answer.clone());
            self.fill(now, cache, &request, answer, received);
        }
        if is_whole && let Some(transfer) = self.transfers.remove(&id) {
            *self.connections.entry((transfer.to, transfer.from)).or_default() += 1;
            if let Some(entry) =
                self.servers[transfer.from].content.entries.get_mut(&transfer.request.key)
            {
                entry.readers.retain(|reader| *reader != id);
            }
        }
    }

    fn fill(
        &mut self,
        now: Micros,
        cache: ServerId,
        request: &Request,
        answer: Answer,
        received: u64,
    ) {
        let Some(entry) = self.servers[cache].content.entries.get_mut(&request.key) else { return };
        entry.received = received;
        let (waiting, readers) = (std::mem::take(&mut entry.waiting), entry.readers.clone());
        if answer.status >= 400 {
            self.servers[cache].content.entries.remove(&request.key);
        } else {
            entry.answer = Some(answer.clone());
        }
        for pending in waiting {
            let to = Receiver::Node(pending.request.node);
            let available = if answer.status >= 400 { None } else { Some(received) };
            self.start(
                now,
                cache,
                to,
                pending.request,
                Some(pending.reply),
                answer.clone(),
                available,
            );
        }
        for id in readers {
            if let Some(transfer) = self.transfers.get_mut(&id) {
                transfer.available = received;
                self.offer(now, id);
            }
        }
    }

    fn change(&mut self, now: Micros, server: ServerId, state: State) {
        if server >= self.servers.len() {
            return;
        }
        self.servers[server].state = state;
        if state == State::Up {
            return;
        }
        let (wait, why) = if state == State::Silent {
            (micros(self.options.timeout), "timed out")
        } else {
            (0, "connection reset")
        };
        self.servers[server].link.turns.clear();
        let mut lost: Vec<_> = std::mem::take(&mut self.servers[server].content.entries)
            .into_values()
            .flat_map(|entry| entry.waiting)
            .collect();
        let is_lost =
            |transfer: &Transfer| transfer.from == server || transfer.to == Receiver::Cache(server);
        let mut broken = Vec::new();
        let ids: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| is_lost(transfer))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(transfer) = self.transfers.remove(&id) else { continue };
            let (connect_timeout, is_connected) = (self.options.timeout, true);
            broken.extend(transfer.body);
            lost.extend(transfer.reply.map(|reply| Pending {
                request: transfer.request,
                connect_timeout,
                is_connected,
                reply,
            }));
        }
        for body in broken {
            self.push(now + wait, Event::Break(body, why));
        }
        lost.sort_by(|a, b| a.request.cmp(&b.request));
        for pending in lost {
            self.push(now + wait, Event::Refuse(pending, why));
        }
        self.connections
            .retain(|(client, to), _| *to != server && *client != Receiver::Cache(server));
    }
}

impl Transfer {
    fn deliver(&mut self, len: u64) {
        let before = self.received;
        self.received += len;
        if let Some(reply) = self.reply.take() {
            let (sender, body) = unbounded_channel();
            let _ = reply.send(Ok(Response {
                status: self.answer.status,
                range_start: self.answer.range_start,
                body,
            }));
            self.body = Some(sender);
        }
        let part = self.answer.body_part(before..self.received);
        if let Some(body) = self.body.as_ref().filter(|_| !part.is_empty()) {
            let _ = body.send(Ok(part));
        }
    }
}

/// Answers as a static web server does.
fn answer(files: &WebFiles, request: &Request) -> Answer {
    let Some(file) = files.get(&*request.path) else {
        return Answer { status: 404, range_start: None, body: Bytes::new() };
    };
    match request.key.1 {
        None => Answer { status: 200, range_start: None, body: file.clone() },
        Some((start, end)) if start < file.len() as u64 => {
            let body = file.slice(start as usize..end.min(file.len() as u64) as usize);
            Answer { status: 206, range_start: Some(start), body }
        }
        Some(_) => Answer { status: 416, range_start: None, body: Bytes::new() },
    }
}

fn micros(duration: Duration) -> Micros {
    duration.as_micros() as Micros
}
