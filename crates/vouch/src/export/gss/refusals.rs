//! Which refused tickets are worth a line in the log: whoever can connect can cause them, as fast as he likes. Never reads the clock.

use std::collections::HashMap;
use std::net::IpAddr;

/// Lines that may still be logged, of each client and in all.
#[derive(Default)]
pub(super) struct Refusals {
    clients: HashMap<IpAddr, Client>,
    all: Bucket,
    /// Not logged, of clients that have no entry of their own.
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

    /// Takes one of `count`, each of which comes back after `each_ms`.
    fn take(&mut self, now_ms: u64, count: u64, each_ms: u64) -> bool {
        self.refill(now_ms);
        let has = self.used_ms + each_ms <= count * each_ms;
        if has {
            self.used_ms += each_ms;
        }
        has
    }
}

impl Refusals {
    /// Whether to log a refusal of this client; if so, how many of its refusals were not logged since the last.
    pub(super) fn log(&mut self, client: IpAddr, now_ms: u64) -> Option<u64> {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            self.clients.retain(|_, known| {
                known.bucket.refill(now_ms);
                known.bucket.used_ms > 0 || known.untold > 0
            });
            if self.clients.len() >= CLIENTS_MAX {
                self.untold += 1;
                return self.all.take(now_ms, LINES_ALL, LINE_ALL_MS).then(|| std::mem::take(&mut self.untold) - 1);
            }
        }
        let Client { bucket, untold } = self.clients.entry(client).or_default();
        if bucket.take(now_ms, LINES_CLIENT, LINE_CLIENT_MS) && self.all.take(now_ms, LINES_ALL, LINE_ALL_MS) {
            return Some(std::mem::take(untold));
        }
        *untold += 1;
        None
    }

    /// Forgets clients that have been quiet for long: what of theirs was not logged is in the counts. O(n).
    pub(super) fn expire(&mut self, now_ms: u64) {
        self.clients.retain(|_, client| now_ms.saturating_sub(client.bucket.at_ms) < FORGET_MS);
    }
}

/// Lines of one client at once, and when the next is due: a user's mistakes are all told, a loop's are not.
const LINES_CLIENT: u64 = 5;
const LINE_CLIENT_MS: u64 = 10_000;
/// Lines in all at once, and when the next is due: a cluster whose keytab is out of date shall not fill the disk with its log.
const LINES_ALL: u64 = 100;
const LINE_ALL_MS: u64 = 200;
/// Clients that are told apart.
const CLIENTS_MAX: usize = 1024;
/// A client that has been quiet for so long is forgotten.
const FORGET_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn one_client_in_a_loop_does_not_hide_another() {
        let mut refusals = Refusals::default();
        let logged = (0..10_000).filter(|now_ms| refusals.log(client(1), *now_ms).is_some()).count();
        assert_eq!(logged, 5);
        assert_eq!(refusals.log(client(2), 10_000), Some(0));
        // What was not logged is told with the next line.
        assert_eq!(refusals.log(client(1), 20_000), Some(10_000 - 5));
    }

    #[test]
    fn all_clients_together_are_bounded_in_lines_and_memory() {
        let mut refusals = Refusals::default();
        let logged = (0..100_000).filter(|number| refusals.log(client(*number), 5).is_some()).count();
        assert_eq!(logged, 100);
        assert!(refusals.clients.len() <= CLIENTS_MAX);
        // One that has no entry finds the line that came back, and tells of the others.
        assert!(refusals.log(client(99_999), 205).is_some_and(|untold| untold > 90_000));
        refusals.expire(FORGET_MS + 1000);
        assert!(refusals.clients.is_empty());
    }
}
