//! To the worker with the fewest connections.

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
use crate::monitoring::client_faults::ClientFault;
use crate::thread_pool::TaskOrigin;
use crate::transport::inbox::Message;

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

fn take_all(listener: &mio::net::TcpListener, driver: &Arc<Driver>) -> bool {
    loop {
        match listener.accept() {
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

const STOP_STEP: Duration = Duration::from_millis(100);
