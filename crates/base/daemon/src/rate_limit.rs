//! For messages that any peer can trigger. It counts omitted messages. The caller passes the clock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// A burst, and the interval at which it refills by one.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub count: u64,
    pub each_ms: u64,
}

pub struct Throttle {
    client: Rate,
    all: Rate,
    clients: HashMap<IpAddr, Client>,
    bucket: Bucket,
    /// Omitted messages of clients without an entry.
    omitted: u64,
}

#[derive(Default)]
struct Client {
    bucket: Bucket,
    omitted: u64,
}

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
        let has_room = self.used_ms + rate.each_ms <= rate.count * rate.each_ms;
        if has_room {
            self.used_ms += rate.each_ms;
        }
        has_room
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OmittedMessages {
    pub count: u64,
    pub clients: Vec<(IpAddr, u64)>,
}

impl Throttle {
    pub fn new(client: Rate, all: Rate) -> Self {
        Throttle { client, all, clients: HashMap::new(), bucket: Bucket::default(), omitted: 0 }
    }

    pub fn of_lines() -> Self {
        Throttle::new(LINES_CLIENT, LINES_ALL)
    }

    /// `None` omits the message; else the number omitted since the client's last one.
    pub fn admit(&mut self, client: IpAddr, now_ms: u64) -> Option<u64> {
        let client = network(client);
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            self.clients.retain(|_, known| {
                known.bucket.refill(now_ms);
                known.bucket.used_ms > 0 || known.omitted > 0
            });
            if self.clients.len() >= CLIENTS_MAX {
                self.omitted += 1;
                return self
                    .bucket
                    .take(now_ms, self.all)
                    .then(|| std::mem::take(&mut self.omitted) - 1);
            }
        }
        let Client { bucket, omitted } = self.clients.entry(client).or_default();
        if bucket.take(now_ms, self.client) && self.bucket.take(now_ms, self.all) {
            return Some(std::mem::take(omitted));
        }
        *omitted += 1;
        None
    }

    pub(crate) fn take_omitted(&mut self) -> OmittedMessages {
        let mut clients: Vec<(IpAddr, u64)> = self
            .clients
            .iter_mut()
            .filter(|(_, client)| client.omitted > 0)
            .map(|(address, client)| (*address, std::mem::take(&mut client.omitted)))
            .collect();
        let count =
            std::mem::take(&mut self.omitted) + clients.iter().map(|(_, count)| count).sum::<u64>();
        clients.sort_unstable_by_key(|(address, count)| (std::cmp::Reverse(*count), *address));
        clients.truncate(NAMED_MAX);
        OmittedMessages { count, clients }
    }

    /// Removes clients without recent messages. O(n).
    pub fn expire(&mut self, now_ms: u64) {
        self.clients.retain(|_, client| now_ms.saturating_sub(client.bucket.at_ms) < FORGET_MS);
    }
}

/// One IPv6 host has a /64 network (RFC 6177).
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        v4 => v4,
    }
}

const CLIENTS_MAX: usize = 1024;
const FORGET_MS: u64 = 3_600_000;
const NAMED_MAX: usize = 8;

/// A user's mistakes are all logged, a loop is not.
const LINES_CLIENT: Rate = Rate { count: 5, each_ms: 10_000 };
/// A cluster with an outdated keytab must not fill the disk.
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
        let logged =
            (0..10_000).filter(|now_ms| throttle.admit(client(1), *now_ms).is_some()).count();
        assert_eq!(logged, 5);
        assert_eq!(throttle.admit(client(2), 10_000), Some(0));
        assert_eq!(throttle.admit(client(1), 20_000), Some(10_000 - 5));
    }

    #[test]
    fn all_clients_together_are_bounded_in_lines_and_memory() {
        let mut throttle = Throttle::new(CLIENT, ALL);
        let logged =
            (0..100_000).filter(|number| throttle.admit(client(*number), 5).is_some()).count();
        assert_eq!(logged, 100);
        assert!(throttle.clients.len() <= CLIENTS_MAX);
        assert!(throttle.admit(client(99_999), 205).is_some_and(|omitted| omitted > 90_000));
        throttle.expire(FORGET_MS + 1000);
        assert!(throttle.clients.is_empty());
    }

    #[test]
    fn ipv6_network_is_one_client() {
        let mut throttle = Throttle::new(CLIENT, ALL);
        let address = |number: u128| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | number));
        assert_eq!(
            (0..1000).filter(|number| throttle.admit(address(*number), 0).is_some()).count(),
            5
        );
        assert_eq!(
            throttle.take_omitted(),
            OmittedMessages { count: 995, clients: vec![(address(0), 995)] }
        );
        assert_eq!(throttle.admit(address(1 << 64), 0), Some(0));
    }

    proptest! {
        #[test]
        fn logged_and_omitted_lines_make_up_all(
            messages in prop::collection::vec((0u32..2000, 0u64..50, prop::bool::weighted(0.01)), 1..3000)
        ) {
            let mut throttle = Throttle::new(CLIENT, ALL);
            let (mut now_ms, mut logged, mut omitted_count) = (0, 0u64, 0u64);
            for (number, step_ms, resets) in &messages {
                now_ms += step_ms;
                if let Some(omitted) = throttle.admit(client(*number), now_ms) {
                    logged += 1;
                    omitted_count += omitted;
                }
                if *resets {
                    omitted_count += throttle.take_omitted().count;
                }
            }
            omitted_count += throttle.take_omitted().count;
            prop_assert_eq!(logged + omitted_count, messages.len() as u64);
            prop_assert!(logged <= ALL.count + now_ms / ALL.each_ms);
        }
    }
}
