//! The load generator: many connections of one thread each through epoll and plain sockets, so that
//! the client, which shares the cores with the server, takes as little of them as it can. The same
//! one drives every protocol.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::OrStop as _;

/// What one connection says and hears.
pub trait Exchange: Sync {
    /// What to send at `step` of client `client`; `None` when the connection is over.
    fn request(&self, client: usize, step: usize) -> Option<&[u8]>;

    /// Whether `received` is the whole answer; `ended` when the server has closed.
    ///
    /// # Errors
    /// When it is the wrong one.
    fn check(&self, client: usize, step: usize, received: &[u8], ended: bool) -> Result<bool, String>;
}

/// How much load.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Threads of the client.
    pub threads: usize,
    /// Connections at once, over all threads.
    pub connections: usize,
    /// Whether a connection that is over is followed by another.
    pub repeat: bool,
    /// When to stop; connections under way then are not counted.
    pub time: Duration,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Connections that went through to their end.
    pub done: u64,
    /// Answers that were right.
    pub answers: u64,
    /// Bytes received.
    pub received: u64,
    /// Connections that failed.
    pub failures: u64,
    /// Why the first of them did.
    pub first_failure: Option<String>,
    /// CPU time of the load generator's threads.
    pub cpu: Duration,
    /// From the first connection to the last answer.
    pub elapsed: Duration,
    /// Answers a second while all connections were open: from when each had had its first answer
    /// until the first was over or the time was. Zero where that never was.
    pub steady_rate: f64,
}

/// Puts the load on a server that answers at all of `addresses`.
pub fn drive(addresses: &[SocketAddr], exchange: &dyn Exchange, plan: &Plan) -> Outcome {
    let start = Instant::now();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let thread = |i| scope.spawn(move || Thread::new(addresses, exchange, plan, i, start).run());
        let threads: Vec<_> = (0..plan.threads).map(thread).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "panicked").or_stop("load thread")).collect()
    });
    let mut sum = Outcome { elapsed: start.elapsed(), ..Outcome::default() };
    for outcome in outcomes {
        sum.done += outcome.done;
        sum.answers += outcome.answers;
        sum.received += outcome.received;
        sum.cpu += outcome.cpu;
        sum.failures += outcome.failures;
        sum.steady_rate += outcome.steady_rate;
        sum.first_failure = sum.first_failure.or(outcome.first_failure);
    }
    sum
}

struct Thread<'a> {
    epoll: OwnedFd,
    addresses: &'a [SocketAddr],
    exchange: &'a dyn Exchange,
    plan: &'a Plan,
    end: Instant,
    clients: Vec<Client>,
    /// Number of the first client in the whole load.
    first: usize,
    connected: usize,
    open: usize,
    to_start: VecDeque<usize>,
    /// Clients that have had an answer.
    answered: usize,
    /// When all had had one, and how many answers there were then.
    steady: Option<(Instant, u64)>,
    outcome: Outcome,
    buffer: Vec<u8>,
}

#[derive(Default)]
struct Client {
    socket: Option<OwnedFd>,
    step: usize,
    sent: usize,
    /// What has come of the answer, where it comes in several reads.
    received: Vec<u8>,
}

impl<'a> Thread<'a> {
    fn new(addresses: &'a [SocketAddr], exchange: &'a dyn Exchange, plan: &'a Plan, i: usize, start: Instant) -> Self {
        let first = plan.connections * i / plan.threads;
        let count = plan.connections * (i + 1) / plan.threads - first;
        Self {
            epoll: epoll::create(CreateFlags::CLOEXEC).or_stop("epoll"),
            addresses,
            exchange,
            plan,
            end: start + plan.time,
            clients: (0..count).map(|_| Client::default()).collect(),
            first,
            connected: i,
            open: 0,
            to_start: (0..count).collect(),
            answered: 0,
            steady: None,
            outcome: Outcome::default(),
            buffer: vec![0; 256 * 1024],
        }
    }

    fn run(mut self) -> Outcome {
        let mut events = Vec::with_capacity(512);
        loop {
            let now = Instant::now();
            if now >= self.end {
                return self.finished();
            }
            // Some at a time, so that those which are connected already are heard in between.
            for _ in 0..64 {
                let Some(i) = self.to_start.pop_front() else { break };
                self.open += 1;
                if let Err(why) = self.connect(i) {
                    self.fail(i, why);
                }
            }
            if self.to_start.is_empty() && self.open == 0 {
                return self.finished();
            }
            events.clear();
            let wait = if self.to_start.is_empty() { Duration::from_millis(100) } else { Duration::ZERO };
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => Err(error).or_stop("epoll"),
            }
            for event in &events {
                let i = { event.data }.u64() as usize;
                if self.clients[i].socket.is_some()
                    && let Err(why) = self.go_on(i)
                {
                    self.fail(i, why);
                }
            }
        }
    }

    /// Takes note of an answer to a client's first request, when `step` is 1, and of one to its
    /// last.
    fn steady(&mut self, step: usize, last: bool) {
        if step == 1 && !self.plan.repeat {
            self.answered += 1;
            if self.answered == self.clients.len() {
                self.steady = Some((Instant::now(), self.outcome.answers));
            }
        }
        if last {
            self.end_steady();
        }
    }

    fn end_steady(&mut self) {
        if let Some((since, answers)) = self.steady.take() {
            self.outcome.steady_rate = (self.outcome.answers - answers) as f64 / since.elapsed().as_secs_f64();
        }
    }

    fn finished(mut self) -> Outcome {
        self.end_steady();
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        self.outcome.cpu = Duration::new(used.tv_sec as u64, used.tv_nsec as u32);
        self.outcome
    }

    fn connect(&mut self, i: usize) -> Result<(), String> {
        self.connected += 1;
        let address = self.addresses[self.connected % self.addresses.len()];
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(|e| e.to_string())?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(format!("connect: {error}")),
        }
        let client = &mut self.clients[i];
        (client.step, client.sent) = (0, 0);
        client.received.clear();
        client.socket = Some(socket);
        // On loopback the connection is mostly there already, and the request can go before any news of it.
        let sent = self.send(i)?;
        let interest = EventFlags::IN | EventFlags::ET | if sent { EventFlags::empty() } else { EventFlags::OUT };
        let Some(socket) = &self.clients[i].socket else { return Ok(()) };
        epoll::add(&self.epoll, socket.as_fd(), EventData::new_u64(i as u64), interest).map_err(|error| error.to_string())
    }

    /// Sends what it can of the step's request; whether that was all.
    fn send(&mut self, i: usize) -> Result<bool, String> {
        let client = &mut self.clients[i];
        let (Some(socket), Some(request)) = (&client.socket, self.exchange.request(self.first + i, client.step)) else { return Ok(true) };
        while client.sent < request.len() {
            match rustix::net::send(socket, &request[client.sent..], SendFlags::NOSIGNAL) {
                Ok(n) => client.sent += n,
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(false),
                Err(error) => return Err(format!("send: {error}")),
            }
        }
        Ok(true)
    }

    fn go_on(&mut self, i: usize) -> Result<(), String> {
        let number = self.first + i;
        loop {
            if !self.send(i)? {
                return Ok(());
            }
            let client = &mut self.clients[i];
            let Some(socket) = &client.socket else { return Ok(()) };
            let n = match rustix::net::recv(socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((n, _)) => n,
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(format!("receive: {error}")),
            };
            self.outcome.received += n as u64;
            let whole = if client.received.is_empty() && n > 0 {
                let whole = self.exchange.check(number, client.step, &self.buffer[..n], false)?;
                if !whole {
                    client.received.extend_from_slice(&self.buffer[..n]);
                }
                whole
            } else {
                client.received.extend_from_slice(&self.buffer[..n]);
                self.exchange.check(number, client.step, &client.received, n == 0)?
            };
            if whole {
                client.received = Vec::new();
                (client.step, client.sent) = (client.step + 1, 0);
                self.outcome.answers += 1;
                let (step, last) = (client.step, self.exchange.request(number, client.step).is_none());
                self.steady(step, last);
                if last {
                    self.outcome.done += 1;
                    self.finish(i);
                    return Ok(());
                }
                // The answer can't be there yet; the system will tell.
                if self.send(i)? {
                    return Ok(());
                }
            } else if n == 0 {
                return Err("the server closed early".into());
            }
        }
    }

    fn fail(&mut self, i: usize, why: String) {
        self.outcome.failures += 1;
        self.outcome.first_failure.get_or_insert(why);
        self.finish(i);
    }

    fn finish(&mut self, i: usize) {
        self.clients[i].socket = None;
        self.open -= 1;
        if self.plan.repeat {
            self.to_start.push_back(i);
        }
    }
}
