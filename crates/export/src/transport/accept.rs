//! The thread that takes connections and deals them out: each to the worker that has the fewest, so
//! that the two connections of a client end up on two threads.

use std::io;
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
use crate::thread_pool::TaskOrigin;
use crate::transport::inbox::Message;

/// Takes connections until the driver stops.
pub(crate) fn run(listeners: Vec<TcpListener>, driver: &Arc<Driver>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut sockets = Vec::new();
    for (i, listener) in listeners.into_iter().enumerate() {
        let mut socket = mio::net::TcpListener::from_std(listener);
        poll.registry().register(&mut socket, Token(i), Interest::READABLE)?;
        sockets.push(socket);
    }
    let mut events = Events::with_capacity(64);
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
                paused |= !take_all(socket, driver);
            }
        }
    }
    Ok(())
}

/// Takes what waits. False if the system is out of something.
fn take_all(listener: &mio::net::TcpListener, driver: &Arc<Driver>) -> bool {
    loop {
        match listener.accept() {
            Ok((socket, peer)) => admit(socket.into(), peer, driver),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            // accept(2): errors that were pending on the new connection are its own.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                tracing::warn!(%error, "connections can't be accepted for a moment");
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
        let refused = Refused { detail: "too many connections", ..Refused::from(Refusal::Client, peer) };
        driver.audit.iter().for_each(|audit| audit.refuse(&refused));
        return;
    }
    driver.traffic.accepted.add(1);
    // What fails here costs comfort, not correctness.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let _ = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
    let _ = socket.set_nodelay(true);
    // Where exports name hosts by pattern or netgroup, who this is must be known before a call of its
    // is looked at; a name service that is slow holds nobody else up.
    if !driver.hosts.must_look_up(peer.ip()) {
        tell_name(peer.ip(), driver);
        return deal(socket, peer, driver);
    }
    match driver.host_lookups.enter(peer.ip(), (socket, peer), clock::mono_ms()) {
        Enqueued::Waiting => {}
        Enqueued::LookUp => {
            let shared = driver.clone();
            driver.names.submit(TaskOrigin::Server, move || find_names(peer.ip(), &shared));
        }
        Enqueued::Full((_, peer)) => leave_unnamed(peer, driver),
    }
}

/// Has the name of a host looked for that is told in records, beside its calls: those that come
/// first may be recorded without it.
fn tell_name(host: IpAddr, driver: &Arc<Driver>) {
    // Where too many are looked for, this one is when those that are connected are looked at again.
    if driver.hosts.should_look_up(host) && driver.audit_lookups.enter(host, (), clock::mono_ms()) == Enqueued::LookUp {
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

/// Likewise for those that stay connected, beside the addresses that exports are granted by: a
/// reverse zone that is slow must not hold these up.
pub(crate) fn tell_names_again(driver: &Arc<Driver>) {
    driver.hosts.stale_recorded_clients().into_iter().for_each(|host| tell_name(host, driver));
}

/// Looks for the name of a host, then for those of others that wait for a thread.
fn find_names(first: IpAddr, driver: &Driver) {
    let mut next = Some(first);
    while let Some(host) = next {
        driver.hosts.look_up_if_stale(host);
        let (sockets, then) = driver.host_lookups.found(host);
        sockets.into_iter().for_each(|(socket, peer)| deal(socket, peer, driver));
        next = then;
    }
}

/// Those who have waited for their host's name for too long. A host that had one is served by that:
/// a name service that is away takes nothing from anybody. Others are closed, and come again; to
/// serve them as nobody would look to them as if the export were gone.
fn expire(driver: &Driver) {
    driver.audit_lookups.expire(clock::mono_ms());
    for (host, (socket, peer)) in driver.host_lookups.expire(clock::mono_ms()) {
        match driver.hosts.has_record(host) {
            true => deal(socket, peer, driver),
            false => leave_unnamed(peer, driver),
        }
    }
}

fn leave_unnamed(peer: SocketAddr, driver: &Driver) {
    driver.traffic.addresses.leave(peer.ip());
    driver.traffic.unnamed.add(1);
    tracing::debug!(%peer, "a connection is closed: the name service has not told its host's name in time, or too many wait for theirs");
}

fn deal(socket: TcpStream, peer: SocketAddr, driver: &Driver) {
    let least = (0..driver.open.len()).min_by_key(|&i| driver.open[i].load(Ordering::Relaxed)).unwrap_or(0);
    driver.open[least].fetch_add(1, Ordering::Relaxed);
    driver.inboxes[least].post(Message::Accepted(socket, peer));
}

/// An IPv4 client of a socket for both is an IPv4 client.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// How often the order to stop is looked for.
const STOP_STEP: Duration = Duration::from_millis(100);
