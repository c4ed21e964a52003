//! Places for connections of agents, by address. Any user of a node can connect and say nothing, so
//! connections that have not proved their principal make room for others.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits::ADDRESS_SHARE;

pub(super) struct Connections {
    count_max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Oldest first.
    entries: Vec<Entry>,
    next: u64,
}

struct Entry {
    id: u64,
    network: IpAddr,
    since: Instant,
    /// None once the peer has proved its principal.
    unproved: Option<TcpStream>,
}

/// A place, which is free again when it is dropped.
pub(super) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
}

impl Connections {
    pub(super) fn new(count_max: usize) -> Self {
        Self { count_max, open: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.open.lock().entries.len()
    }

    /// Whether a connection can be accepted. Closes one of the address with the most connections if
    /// that is needed.
    pub(super) fn make_room(&self, now: Instant) -> bool {
        let mut open = self.open.lock();
        if open.entries.len() < self.count_max {
            return true;
        }
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for entry in open.entries.iter().filter(|entry| entry.unproved.is_some()) {
            *counts.entry(entry.network).or_default() += 1;
        }
        let greediest = counts.into_iter().max_by_key(|(_, count)| *count);
        greediest.is_some_and(|(network, _)| open.evict(network, now, IDLE_MIN))
    }

    /// None if the address has all that it may have, and each of them is in use.
    pub(super) fn admit(
        self: &Arc<Self>,
        socket: &TcpStream,
        address: IpAddr,
        now: Instant,
    ) -> Option<ConnectionPermit> {
        let network = network(address);
        let unproved = Some(socket.try_clone().ok()?);
        let mut open = self.open.lock();
        let count = open.entries.iter().filter(|entry| entry.network == network).count();
        if count >= self.count_max.div_ceil(ADDRESS_SHARE)
            && !open.evict(network, now, IDLE_MIN_OF_ADDRESS)
        {
            return None;
        }
        let id = open.next;
        open.next += 1;
        open.entries.push(Entry { id, network, since: now, unproved });
        Some(ConnectionPermit { connections: self.clone(), id })
    }
}

impl Open {
    /// Closes the oldest connection of a network that has proved nothing for this long.
    fn evict(&mut self, network: IpAddr, now: Instant, idle_min: Duration) -> bool {
        let is_idle = |entry: &Entry| {
            entry.network == network
                && entry.unproved.is_some()
                && now.saturating_duration_since(entry.since) >= idle_min
        };
        let Some(oldest) = self.entries.iter().position(is_idle) else { return false };
        if let Some(socket) = self.entries.remove(oldest).unproved {
            let _ = socket.shutdown(Shutdown::Both);
        }
        true
    }
}

impl ConnectionPermit {
    pub(super) fn set_proved(&self) {
        if let Some(entry) =
            self.connections.open.lock().entries.iter_mut().find(|entry| entry.id == self.id)
        {
            entry.unproved = None;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.open.lock().entries.retain(|entry| entry.id != self.id);
    }
}

/// A host of IPv6 has a network of addresses.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => IpAddr::from((u128::from(v6) >> 64 << 64).to_be_bytes()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A handshake takes milliseconds. Many agents that begin at once must not close each other's.
const IDLE_MIN: Duration = Duration::from_secs(1);
const IDLE_MIN_OF_ADDRESS: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn is_closed(mut near: &TcpStream) -> bool {
        matches!(near.read(&mut [0]), Ok(0))
    }

    #[test]
    fn silent_connections_make_room_and_agents_stay() {
        let connections = Arc::new(Connections::new(8));
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let admit = |address: &str, ms| {
            let (near, far) = pair();
            connections
                .admit(&far, address.parse().unwrap(), at(ms))
                .map(|place| (near, place, far))
        };
        // Two places an address; a host of IPv6 has a network.
        let agent = admit("192.0.2.1", 0).unwrap();
        agent.1.set_proved();
        let silent = admit("192.0.2.1", 1).unwrap();
        assert!(admit("192.0.2.1", 2).is_none(), "a handshake takes its time");
        let second = admit("192.0.2.1", 200).unwrap();
        assert!(is_closed(&silent.0) && !is_closed(&agent.0) && !is_closed(&second.0));
        drop(silent);
        let v6 = [admit("2001:db8::1", 200).unwrap(), admit("2001:db8::2", 200).unwrap()];
        assert!(admit("2001:db8::3", 201).is_none());
        // All places are taken, by silent connections of few addresses.
        let others: Vec<_> = ["192.0.2.2", "192.0.2.2", "192.0.2.3", "192.0.2.3"]
            .iter()
            .map(|address| admit(address, 300).unwrap())
            .collect();
        assert!(!connections.make_room(at(301)), "the next one waits");
        assert!(connections.make_room(at(1500)));
        assert_eq!(connections.count(), 7);
        let closed = v6.iter().chain(&others).filter(|(near, ..)| is_closed(near)).count();
        assert_eq!((closed, is_closed(&agent.0)), (1, false));
        // Agents at work are never closed.
        for (_, place, _) in v6.iter().chain(&others).chain([&second]) {
            place.set_proved();
        }
        let _last = admit("192.0.2.4", 1500).unwrap();
        _last.1.set_proved();
        assert!(!connections.make_room(at(60_000)));
        drop(agent);
        assert!(connections.make_room(at(60_000)));
    }
}
