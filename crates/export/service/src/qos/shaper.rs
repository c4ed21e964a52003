//! Rate limits by the generic cell rate algorithm (ITU-T I.371): a limit is one time, so it needs no
//! lock and no timer. Never reads the clock.

use std::sync::atomic::{AtomicU64, Ordering};

use vouch_nfs4_server::Rates;

use crate::monitoring::counter::Counter;

/// The limits of one client, or of all clients together, on one export.
pub(crate) struct Shaper {
    ops: Option<RateLimit>,
    bytes: Option<RateLimit>,
    pub(crate) ops_used: Counter,
    pub(crate) bytes_used: Counter,
    pub(crate) held: Counter,
    pub(crate) held_ms: Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Ops,
    Bytes,
}

struct RateLimit {
    rate: u64,
    burst_ns: u64,
    /// When all that was used is paid for. In the past: unused burst.
    paid_at_ns: AtomicU64,
}

impl Shaper {
    pub(crate) fn new(rates: Rates, burst_ms: u32) -> Self {
        let limit = |rate| RateLimit {
            rate,
            burst_ns: u64::from(burst_ms) * 1_000_000,
            paid_at_ns: AtomicU64::new(0),
        };
        Shaper {
            ops: rates.ops.map(limit),
            bytes: rates.bytes.map(limit),
            ops_used: Counter::default(),
            bytes_used: Counter::default(),
            held: Counter::default(),
            held_ms: Counter::default(),
        }
    }

    /// Also above the limit: the cost of a call is known when it has run.
    pub(crate) fn charge(&self, ops: u64, bytes: u64, now_ns: u64) {
        self.ops_used.add(ops);
        self.bytes_used.add(bytes);
        self.ops.iter().for_each(|limit| limit.charge(ops, now_ns));
        self.bytes.iter().for_each(|limit| limit.charge(bytes, now_ns));
    }

    /// The time until further calls are within the limits, and the limit that lasts longest.
    pub(crate) fn wait(&self, now_ns: u64) -> Option<(u64, Resource)> {
        let of = |limit: &Option<RateLimit>, resource| {
            let wait_ns = limit.as_ref()?.paid_at_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
            (wait_ns > 0).then_some((wait_ns, resource))
        };
        of(&self.ops, Resource::Ops)
            .into_iter()
            .chain(of(&self.bytes, Resource::Bytes))
            .max_by_key(|(wait_ns, _)| *wait_ns)
    }

    /// Forgetting it changes nothing: its whole burst is unused.
    pub(crate) fn is_unused(&self, now_ns: u64) -> bool {
        self.ops.iter().chain(&self.bytes).all(|limit| {
            limit.paid_at_ns.load(Ordering::Relaxed) <= now_ns.saturating_sub(limit.burst_ns)
        })
    }
}

impl RateLimit {
    fn charge(&self, amount: u64, now_ns: u64) {
        let cost_ns = u128::from(amount) * 1_000_000_000 / u128::from(self.rate.max(1));
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let earliest = now_ns.saturating_sub(self.burst_ns);
        let paid = |at: u64| Some(at.max(earliest).saturating_add(cost_ns));
        let _ = self.paid_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn busy_client_gets_its_rate_and_idle_client_its_burst() {
        let shaper = Shaper::new(Rates { ops: Some(100), bytes: None }, 500);
        let (mut now, mut ops) = (10 * SECOND, 0);
        let end = now + 10 * SECOND;
        while now < end {
            match shaper.wait(now) {
                Some((wait_ns, resource)) => {
                    assert_eq!(resource, Resource::Ops);
                    now += wait_ns;
                }
                None => {
                    shaper.charge(1, 1 << 20, now);
                    ops += 1;
                }
            }
        }
        assert!((1050..=1052).contains(&ops), "a burst of 50 and 100 a second: {ops}");
        assert!(!shaper.is_unused(now) && shaper.is_unused(now + SECOND));
    }

    #[test]
    fn longest_wait_names_the_limit() {
        let rates = Rates { ops: Some(1000), bytes: Some(1 << 20) };
        let shaper = Shaper::new(rates, 1);
        shaper.charge(10, 4 << 20, SECOND);
        let (wait_ns, resource) = shaper.wait(SECOND).unwrap();
        assert_eq!(resource, Resource::Bytes);
        assert!((3 * SECOND..=4 * SECOND).contains(&wait_ns));
        shaper.charge(u64::MAX, u64::MAX, SECOND);
        assert_eq!(shaper.wait(SECOND).unwrap().0, u64::MAX - SECOND, "no overflow");
    }
}
