//! To the worker with the fewest connections.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use socket2::{SockRef, TcpKeepalive};
use vouch_audit::record::Refusal;

use crate::audit::Refused;
use crate::clock;
use crate::driver::Driver;
use crate::hosts::lookup_queue::Enqueued;
use crate::limits::{ACCEPT_PAUSE, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};
use crate::monitoring::client_faults::ClientFault;
use crate::thread_pool::TaskOrigin;
use crate::transport::inbox::Message;
use crate::transport::proxy_header::{Balancers, HEADER_LEN_MAX, Header};

pub(crate) fn run(
    listeners: Vec<TcpListener>,
    balancers: Vec<Balancers>,
    driver: &Arc<Driver>,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut sockets = Vec::new();
    for (i, listener) in listeners.into_iter().enumerate() {
        let mut socket = mio::net::TcpListener::from_std(listener);
        poll.registry().register(&mut socket, Token(i), Interest::READABLE)?;
        sockets.push(socket);
    }
    let mut events = Events::with_capacity(64);
    let first = sockets.len();
    let mut proxied = Proxied { balancers, first, next: first, waiting: HashMap::new() };
    let mut paused = false;
    while !driver.stop.load(Ordering::Acquire) {
        match poll.poll(&mut events, Some(if paused { ACCEPT_PAUSE } else { STOP_STEP })) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        expire(driver);
        let all = std::mem::take(&mut paused);
        for (i, socket) in sockets.iter().enumerate() {
            if all || events.iter().any(|event| event.token() == Token(i)) {
                paused |= !take_all(socket, poll.registry(), &mut proxied, driver);
            }
        }
        events.iter().for_each(|event| proxied.readable(event.token(), poll.registry(), driver));
        proxied.expire(driver);
    }
    Ok(())
}

/// Connections of balancers whose header is not complete.
struct Proxied {
    balancers: Vec<Balancers>,
    first: usize,
    next: usize,
    waiting: HashMap<usize, (mio::net::TcpStream, SocketAddr, u64)>,
}

impl Proxied {
    fn enter(
        &mut self,
        mut socket: mio::net::TcpStream,
        balancer: SocketAddr,
        registry: &mio::Registry,
        driver: &Arc<Driver>,
    ) {
        if self.waiting.len() >= PROXIED_WAITING_MAX {
            return refuse_proxied(balancer, "too many wait for their header", driver);
        }
        let token = Token(self.next);
        if registry.register(&mut socket, token, Interest::READABLE).is_ok() {
            self.waiting.insert(token.0, (socket, balancer, clock::mono_ms()));
            self.next = self.next.checked_add(1).unwrap_or(self.first);
        }
    }

    fn readable(&mut self, token: Token, registry: &mio::Registry, driver: &Arc<Driver>) {
        let Some((mut socket, balancer, since)) = self.waiting.remove(&token.0) else { return };
        let mut bytes = [0; HEADER_LEN_MAX];
        let header = match socket.peek(&mut bytes) {
            Ok(0) => return,
            Ok(len) => Header::parse(&bytes[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Header::Incomplete),
            Err(_) => return,
        };
        match header {
            Ok(Header::Incomplete) => {
                self.waiting.insert(token.0, (socket, balancer, since));
            }
            Ok(Header::Complete(len, client)) => {
                // The bytes were seen, so they are read at once.
                let is_read = socket.read_exact(&mut bytes[..len]).is_ok();
                if is_read && registry.deregister(&mut socket).is_ok() {
                    admit(socket.into(), client.unwrap_or(balancer), driver);
                }
            }
            Err(fault) => refuse_proxied(balancer, &fault.to_string(), driver),
        }
    }

    fn expire(&mut self, driver: &Arc<Driver>) {
        let now_ms = clock::mono_ms();
        self.waiting.retain(|_, (_, balancer, since)| {
            let is_late = now_ms.saturating_sub(*since) >= PROXY_HEADER_MS_MAX;
            if is_late {
                refuse_proxied(*balancer, "none came in time", driver);
            }
            !is_late
        });
    }
}

fn refuse_proxied(balancer: SocketAddr, why: &str, driver: &Arc<Driver>) {
    driver.traffic.refused.add(1);
    let refused = Refused { detail: "no PROXY header", ..Refused::from(Refusal::Client, balancer) };
    driver.audit.iter().for_each(|audit| audit.refuse(&refused));
    driver.client_faults.note(
        ClientFault::ProxyHeader,
        None,
        balancer.ip(),
        format_args!("why={why:?}"),
    );
}

fn take_all(
    listener: &mio::net::TcpListener,
    registry: &mio::Registry,
    proxied: &mut Proxied,
    driver: &Arc<Driver>,
) -> bool {
    loop {
        match listener.accept() {
            Ok((socket, peer))
                if proxied.balancers.iter().any(|all| all.has(canonical(peer).ip())) =>
            {
                proxied.enter(socket, canonical(peer), registry, driver)
            }
            Ok((socket, peer)) => admit(socket.into(), peer, driver),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; retrying after a pause");
                return false;
            }
        }
    }
}

fn admit(socket: TcpStream, peer: SocketAddr, driver: &Arc<Driver>) {
    let open = driver.open.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
    let peer = canonical(peer);
    let left = driver.limits.connections_max.saturating_sub(open + driver.host_lookups.waiting());
    if !driver.traffic.addresses.enter(peer.ip(), driver.limits.connections_per_address_max, left) {
        driver.traffic.refused.add(1);
        driver.client_faults.note(
            ClientFault::ConnectionsFull,
            None,
            peer.ip(),
            format_args!("open={open}"),
        );
        let refused =
            Refused { detail: "too many connections", ..Refused::from(Refusal::Client, peer) };
        driver.audit.iter().for_each(|audit| audit.refuse(&refused));
        return;
    }
    driver.traffic.accepted.add(1);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
    let _ = socket.set_nodelay(true);
    // If exports name hosts by pattern or netgroup. A slow name service delays only such
    // connections.
    if !driver.hosts.must_look_up(peer.ip()) {
        look_up_audit_name(peer.ip(), driver);
        return assign(socket, peer, driver);
    }
    match driver.host_lookups.enter(peer.ip(), (socket, peer), clock::mono_ms()) {
        Enqueued::Waiting => {}
        Enqueued::LookUp => {
            let shared = driver.clone();
            driver.names.submit(TaskOrigin::Server, move || find_names(peer.ip(), &shared));
        }
        Enqueued::Full((_, peer)) => close_unnamed(peer, driver),
    }
}

/// For audit records only. The first records may lack the name.
fn look_up_audit_name(host: IpAddr, driver: &Arc<Driver>) {
    if driver.hosts.should_look_up(host)
        && driver.audit_lookups.enter(host, (), clock::mono_ms()) == Enqueued::LookUp
    {
        let shared = driver.clone();
        driver.names.submit(TaskOrigin::Server, move || {
            let mut next = Some(host);
            while let Some(host) = next {
                shared.hosts.look_up_if_stale(host);
                next = shared.audit_lookups.found(host).1;
            }
        });
    }
}

/// Slow reverse zones do not delay look-ups that decide about access.
pub(crate) fn refresh_audit_names(driver: &Arc<Driver>) {
    driver
        .hosts
        .stale_recorded_clients()
        .into_iter()
        .for_each(|host| look_up_audit_name(host, driver));
}

fn find_names(first: IpAddr, driver: &Driver) {
    let mut next = Some(first);
    while let Some(host) = next {
        driver.hosts.look_up_if_stale(host);
        let (sockets, then) = driver.host_lookups.found(host);
        sockets.into_iter().for_each(|(socket, peer)| assign(socket, peer, driver));
        next = then;
    }
}

/// Ends long waits for a host name. Without a name or an earlier record, the client would not see
/// the export.
fn expire(driver: &Driver) {
    driver.audit_lookups.expire(clock::mono_ms());
    for (host, (socket, peer)) in driver.host_lookups.expire(clock::mono_ms()) {
        match driver.hosts.has_record(host) {
            true => assign(socket, peer, driver),
            false => close_unnamed(peer, driver),
        }
    }
}

fn close_unnamed(peer: SocketAddr, driver: &Driver) {
    driver.traffic.addresses.leave(peer.ip());
    driver.traffic.unnamed.add(1);
    tracing::debug!(%peer, "closing a connection: the lookup of its host name timed out, or too many lookups wait");
}

fn assign(socket: TcpStream, peer: SocketAddr, driver: &Driver) {
    let least =
        (0..driver.open.len()).min_by_key(|&i| driver.open[i].load(Ordering::Relaxed)).unwrap_or(0);
    driver.open[least].fetch_add(1, Ordering::Relaxed);
    driver.inboxes[least].post(Message::Accepted(socket, peer));
}

fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// Beside the limits of connections, which count from the header on.
const PROXIED_WAITING_MAX: usize = 1024;

const PROXY_HEADER_MS_MAX: u64 = 5000;

const STOP_STEP: Duration = Duration::from_millis(100);
