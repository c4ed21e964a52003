//! Queue of clients that wait for their host name. Uses no resolver and no clock.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::limits::{HOST_LOOKUP_MS_MAX, HOST_LOOKUP_WAITING_MAX, HOST_LOOKUPS_MAX, SHARE};
use crate::memory_quota::quota_address;

pub(crate) struct LookupQueue<S> {
    state: Mutex<State<S>>,
}

struct State<S> {
    hosts: HashMap<IpAddr, Host<S>>,
    queue: VecDeque<IpAddr>,
    running: usize,
    waiting: usize,
    shares: HashMap<IpAddr, usize>,
}

struct Host<S> {
    sockets: Vec<(S, u64)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Enqueued<S> {
    Waiting,
    LookUp,
    Full(S),
}

impl<S> Default for LookupQueue<S> {
    fn default() -> Self {
        LookupQueue {
            state: Mutex::new(State {
                hosts: HashMap::new(),
                queue: VecDeque::new(),
                running: 0,
                waiting: 0,
                shares: HashMap::new(),
            }),
        }
    }
}

impl<S> LookupQueue<S> {
    pub(crate) fn enter(&self, host: IpAddr, socket: S, now_ms: u64) -> Enqueued<S> {
        let mut state = self.state.lock();
        let left = HOST_LOOKUP_WAITING_MAX.saturating_sub(state.waiting);
        let own = state.shares.get(&quota_address(host)).copied().unwrap_or_default();
        if own >= left.saturating_mul(SHARE) {
            return Enqueued::Full(socket);
        }
        state.waiting += 1;
        *state.shares.entry(quota_address(host)).or_default() += 1;
        if let Some(known) = state.hosts.get_mut(&host) {
            known.sockets.push((socket, now_ms));
            return Enqueued::Waiting;
        }
        state.hosts.insert(host, Host { sockets: vec![(socket, now_ms)] });
        if state.running < HOST_LOOKUPS_MAX {
            state.running += 1;
            return Enqueued::LookUp;
        }
        state.queue.push_back(host);
        Enqueued::Waiting
    }

    pub(crate) fn found(&self, host: IpAddr) -> (Vec<S>, Option<IpAddr>) {
        let mut state = self.state.lock();
        let sockets = state.take(host);
        loop {
            let next = state.queue.pop_front();
            match next {
                // No connection waits for this host any more.
                Some(next)
                    if state.hosts.get(&next).is_some_and(|host| host.sockets.is_empty()) =>
                {
                    drop(state.hosts.remove(&next))
                }
                Some(_) => return (sockets, next),
                None => {
                    state.running -= 1;
                    return (sockets, None);
                }
            }
        }
    }

    pub(crate) fn expire(&self, now_ms: u64) -> Vec<(IpAddr, S)> {
        let mut state = self.state.lock();
        if state.waiting == 0 {
            return Vec::new();
        }
        let mut late = Vec::new();
        for (address, host) in &mut state.hosts {
            let count = host
                .sockets
                .iter()
                .take_while(|(_, since)| now_ms.saturating_sub(*since) >= HOST_LOOKUP_MS_MAX)
                .count();
            late.extend(host.sockets.drain(..count).map(|(socket, _)| (*address, socket)));
        }
        late.iter().for_each(|(host, _)| state.leave(*host, 1));
        late
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl<S> State<S> {
    fn leave(&mut self, host: IpAddr, count: usize) {
        self.waiting -= count;
        if let Entry::Occupied(mut own) = self.shares.entry(quota_address(host)) {
            *own.get_mut() -= count;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    fn take(&mut self, host: IpAddr) -> Vec<S> {
        let sockets = self.hosts.remove(&host).map_or_else(Vec::new, |host| host.sockets);
        self.leave(host, sockets.len());
        sockets.into_iter().map(|(socket, _)| socket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: usize) -> IpAddr {
        IpAddr::from((number as u32).to_be_bytes())
    }

    #[test]
    fn looks_up_a_host_once_for_all_its_connections() {
        let queue = LookupQueue::default();
        assert_eq!(queue.enter(host(1), 'a', 0), Enqueued::LookUp);
        assert_eq!(queue.enter(host(1), 'b', 5), Enqueued::Waiting);
        assert_eq!(queue.enter(host(2), 'c', 5), Enqueued::LookUp);
        assert_eq!(queue.found(host(1)), (vec!['a', 'b'], None));
        assert_eq!(queue.enter(host(1), 'd', 6), Enqueued::LookUp);
        assert_eq!(queue.waiting(), 2);
    }

    #[test]
    fn bounds_connections_per_host_and_in_total() {
        let queue = LookupQueue::default();
        let admitted = (0..)
            .take_while(|&number| queue.enter(host(1), number, 0) != Enqueued::Full(number))
            .count();
        assert!((HOST_LOOKUP_WAITING_MAX / 5 * 4..HOST_LOOKUP_WAITING_MAX).contains(&admitted));
        let others = (2..10_000)
            .filter(|&number| queue.enter(host(number), number, 0) != Enqueued::Full(number))
            .count();
        assert_eq!(
            (admitted + others, queue.waiting()),
            (HOST_LOOKUP_WAITING_MAX, HOST_LOOKUP_WAITING_MAX)
        );
    }

    #[test]
    fn ipv6_network_has_one_share() {
        let queue = LookupQueue::default();
        let of =
            |number: usize| IpAddr::from((0x2001_0db8_u128 << 96 | number as u128).to_be_bytes());
        let admitted = (0..10_000)
            .take_while(|&number| queue.enter(of(number), number, 0) != Enqueued::Full(number))
            .count();
        assert!((HOST_LOOKUP_WAITING_MAX / 5 * 4..HOST_LOOKUP_WAITING_MAX).contains(&admitted));
        assert_ne!(queue.enter(host(1), 1, 0), Enqueued::Full(1));
        let found = queue.found(of(0)).0.len();
        assert_eq!((found, queue.expire(HOST_LOOKUP_MS_MAX).len()), (1, admitted));
        assert_eq!((queue.waiting(), queue.state.lock().shares.len()), (0, 0));
    }

    #[test]
    fn bounds_concurrent_lookups_and_keeps_order() {
        let queue = LookupQueue::default();
        let running = (0..HOST_LOOKUPS_MAX + 3)
            .filter(|&number| queue.enter(host(number), number, 0) == Enqueued::LookUp)
            .count();
        assert_eq!(running, HOST_LOOKUPS_MAX);
        let mut next = Some(host(0));
        let mut found = Vec::new();
        while let Some(host) = next {
            let (sockets, then) = queue.found(host);
            found.extend(sockets);
            next = then;
        }
        assert_eq!(found, [0, HOST_LOOKUPS_MAX, HOST_LOOKUPS_MAX + 1, HOST_LOOKUPS_MAX + 2]);
        assert_eq!(queue.enter(host(900), 900, 0), Enqueued::LookUp, "a thread is free");
    }

    #[test]
    fn removes_connections_that_time_out() {
        let queue = LookupQueue::default();
        for number in 0..=HOST_LOOKUPS_MAX {
            queue.enter(host(number), number, 10);
        }
        queue.enter(host(0), 77, 20);
        assert_eq!(queue.expire(9 + HOST_LOOKUP_MS_MAX), []);
        let mut late = queue.expire(10 + HOST_LOOKUP_MS_MAX);
        late.sort_unstable();
        assert_eq!(late.len(), HOST_LOOKUPS_MAX + 1);
        assert_eq!(queue.waiting(), 1);
        assert_eq!(queue.enter(host(1), 78, 30 + HOST_LOOKUP_MS_MAX), Enqueued::Waiting);
        assert_eq!(queue.found(host(0)), (vec![77], None));
        assert_eq!(queue.found(host(1)), (vec![78], None));
        assert_eq!(queue.enter(host(HOST_LOOKUPS_MAX), 79, 0), Enqueued::LookUp);
    }
}
