//! How much of what anybody on the network can cause, as fast as he likes, is told: so much of each
//! client and so much in all. What is left out is counted. Never reads the clock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// So much at once, and one more each so often.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// How many at once.
    pub count: u64,
    /// Milliseconds until one more is allowed.
    pub each_ms: u64,
}

/// What may still be told, of each client and in all.
pub struct Throttle {
    client: Rate,
    all: Rate,
    clients: HashMap<IpAddr, Client>,
    bucket: Bucket,
    /// Left out, of clients that have no entry of their own.
    untold: u64,
}

#[derive(Default)]
struct Client {
    bucket: Bucket,
    untold: u64,
}

/// What was used up, in milliseconds of waiting, at a time.
#[derive(Clone, Copy, Default)]
struct Bucket {
    used_ms: u64,
    at_ms: u64,
}

impl Bucket {
    fn refill(&mut self, now_ms: u64) {
        self.used_ms = self.used_ms.saturating_sub(now_ms.saturating_sub(self.at_ms));
        self.at_ms = now_ms;
    }

    fn take(&mut self, now_ms: u64, rate: Rate) -> bool {
        self.refill(now_ms);
        let has = self.used_ms + rate.each_ms <= rate.count * rate.each_ms;
        if has {
            self.used_ms += rate.each_ms;
        }
        has
    }
}

/// What was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// In all.
    pub count: u64,
    /// Of whom most, at most [`NAMED_MAX`].
    pub clients: Vec<(IpAddr, u64)>,
}

impl Throttle {
    /// A limiter with a rate for each client and one for all.
    pub fn new(client: Rate, all: Rate) -> Self {
        Throttle { client, all, clients: HashMap::new(), bucket: Bucket::default(), untold: 0 }
    }

    /// For lines of the log.
    pub fn of_lines() -> Self {
        Throttle::new(LINES_CLIENT, LINES_ALL)
    }

    /// Whether to tell of something that this client did; if so, how much of it was left out since
    /// the last.
    pub fn admit(&mut self, client: IpAddr, now_ms: u64) -> Option<u64> {
        let client = network(client);
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            self.clients.retain(|_, known| {
                known.bucket.refill(now_ms);
                known.bucket.used_ms > 0 || known.untold > 0
            });
            if self.clients.len() >= CLIENTS_MAX {
                self.untold += 1;
                return self.bucket.take(now_ms, self.all).then(|| std::mem::take(&mut self.untold) - 1);
            }
        }
        let Client { bucket, untold } = self.clients.entry(client).or_default();
        if bucket.take(now_ms, self.client) && self.bucket.take(now_ms, self.all) {
            return Some(std::mem::take(untold));
        }
        *untold += 1;
        None
    }

    /// What was left out and not told of since; it counts as told. O(n).
    pub fn take_left_out(&mut self) -> LeftOut {
        let mut clients: Vec<(IpAddr, u64)> = self
            .clients
            .iter_mut()
            .filter(|(_, client)| client.untold > 0)
            .map(|(address, client)| (*address, std::mem::take(&mut client.untold)))
            .collect();
        let count = std::mem::take(&mut self.untold) + clients.iter().map(|(_, count)| count).sum::<u64>();
        clients.sort_unstable_by_key(|(address, count)| (std::cmp::Reverse(*count), *address));
        clients.truncate(NAMED_MAX);
        LeftOut { count, clients }
    }

    /// Forgets clients that have been quiet for long: what of theirs was left out is in the counts.
    /// O(n).
    pub fn expire(&mut self, now_ms: u64) {
        self.clients.retain(|_, client| now_ms.saturating_sub(client.bucket.at_ms) < FORGET_MS);
    }
}

/// Who has an address of IPv6 has a network of them (RFC 6177).
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// Clients that are told apart.
const CLIENTS_MAX: usize = 1024;
/// A client that has been quiet for so long is forgotten.
const FORGET_MS: u64 = 3_600_000;
/// Clients of which it is told how much was left out.
const NAMED_MAX: usize = 8;

/// Lines on one client: a user's mistakes are all told, a loop's are not.
const LINES_CLIENT: Rate = Rate { count: 5, each_ms: 10_000 };
/// And on all: a cluster whose keytab is out of date shall not fill the disk with its log.
const LINES_ALL: Rate = Rate { count: 100, each_ms: 200 };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const CLIENT: Rate = Rate { count: 5, each_ms: 10_000 };
    const ALL: Rate = Rate { count: 100, each_ms: 200 };

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn one_client_in_a_loop_does_not_hide_another() {
        let mut throttle = Throttle::new(CLIENT, ALL);
        let told = (0..10_000).filter(|now_ms| throttle.admit(client(1), *now_ms).is_some()).count();
        assert_eq!(told, 5);
        assert_eq!(throttle.admit(client(2), 10_000), Some(0));
        // What was left out is told with the next.
        assert_eq!(throttle.admit(client(1), 20_000), Some(10_000 - 5));
    }

    #[test]
    fn all_clients_together_are_bounded_in_lines_and_memory() {
        let mut throttle = Throttle::new(CLIENT, ALL);
        let told = (0..100_000).filter(|number| throttle.admit(client(*number), 5).is_some()).count();
        assert_eq!(told, 100);
        assert!(throttle.clients.len() <= CLIENTS_MAX);
        // One that has no entry finds the line that came back, and tells of the others.
        assert!(throttle.admit(client(99_999), 205).is_some_and(|untold| untold > 90_000));
        throttle.expire(FORGET_MS + 1000);
        assert!(throttle.clients.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let mut throttle = Throttle::new(CLIENT, ALL);
        let address = |number: u128| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | number));
        assert_eq!((0..1000).filter(|number| throttle.admit(address(*number), 0).is_some()).count(), 5);
        assert_eq!(throttle.take_left_out(), LeftOut { count: 995, clients: vec![(address(0), 995)] });
        assert_eq!(throttle.admit(address(1 << 64), 0), Some(0));
    }

    proptest! {
        /// Whatever comes: within the rates, and nothing is both told and counted as left out, or neither.
        #[test]
        fn what_is_told_and_what_is_left_out_make_up_all(
            came in prop::collection::vec((0u32..2000, 0u64..50, prop::bool::weighted(0.01)), 1..3000)
        ) {
            let mut throttle = Throttle::new(CLIENT, ALL);
            let (mut now_ms, mut told, mut left_out) = (0, 0u64, 0u64);
            for (number, step_ms, takes) in &came {
                now_ms += step_ms;
                if let Some(untold) = throttle.admit(client(*number), now_ms) {
                    told += 1;
                    left_out += untold;
                }
                if *takes {
                    left_out += throttle.take_left_out().count;
                }
            }
            left_out += throttle.take_left_out().count;
            prop_assert_eq!(told + left_out, came.len() as u64);
            prop_assert!(told <= ALL.count + now_ms / ALL.each_ms);
        }
    }
}
