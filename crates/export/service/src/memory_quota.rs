//! By source address: at most four times the free rest, which is four fifths for a single address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::limits::{Limits, SHARE};
use crate::monitoring::counter::Counter;

/// The /64 network for IPv6, because a host chooses the other half (RFC 4291 §2.5.1).
pub(crate) fn quota_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

pub(crate) struct Quota {
    max: usize,
    used: AtomicUsize,
    full_at: AtomicUsize,
    pub(crate) refusals: Counter,
    on_room: Box<dyn Fn() + Send + Sync>,
}

pub(crate) struct AddressShare {
    of: Arc<Quota>,
    used: AtomicUsize,
}

impl Quota {
    fn new(max: usize, on_room: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let (used, full_at) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Quota {
            max,
            used,
            full_at,
            refusals: Counter::default(),
            on_room: Box::new(on_room),
        })
    }

    fn share(self: &Arc<Self>) -> AddressShare {
        AddressShare { of: self.clone(), used: AtomicUsize::new(0) }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl AddressShare {
    fn fits(&self, n: usize) -> bool {
        let left =
            self.of.max.saturating_sub(self.of.used.load(Ordering::SeqCst).saturating_add(n));
        self.used.load(Ordering::SeqCst).saturating_add(n) <= left.saturating_mul(SHARE)
    }

    pub(crate) fn has_room(&self, n: usize) -> bool {
        if self.fits(n) {
            return true;
        }
        self.of.full_at.fetch_max(self.of.used.load(Ordering::SeqCst).max(1), Ordering::SeqCst);
        if self.fits(n) {
            return true;
        }
        self.of.refusals.add(1);
        false
    }

    pub(crate) fn charge(&self, n: usize) {
        self.used.fetch_add(n, Ordering::SeqCst);
        self.of.used.fetch_add(n, Ordering::SeqCst);
    }

    pub(crate) fn release(&self, n: usize) {
        self.used.fetch_sub(n, Ordering::SeqCst);
        let left = self.of.used.fetch_sub(n, Ordering::SeqCst) - n;
        let at = self.of.full_at.load(Ordering::SeqCst);
        // A free quarter gives every address room: four times that exceeds any share.
        if at > 0 && left <= at - at / 4 && self.of.full_at.swap(0, Ordering::SeqCst) > 0 {
            (self.of.on_room)();
        }
    }
}

pub(crate) struct AddressShares {
    pub(crate) calls: AddressShare,
    pub(crate) waiting_len: AddressShare,
    held: AddressShare,
    /// Time of all workers.
    pub(crate) worked_ns: AtomicU64,
}

pub(crate) struct Quotas {
    pub(crate) calls: Arc<Quota>,
    pub(crate) waiting_len: Arc<Quota>,
    pub(crate) held: Arc<Quota>,
    of: Mutex<HashMap<IpAddr, Weak<AddressShares>>>,
}

impl Quotas {
    pub(crate) fn new(
        limits: &Limits,
        held_len_max: usize,
        on_room: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Self {
        Quotas {
            calls: Quota::new(limits.waiting_calls_max, on_room.clone()),
            waiting_len: Quota::new(limits.waiting_len_max, on_room.clone()),
            held: Quota::new(held_len_max, on_room),
            of: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_calls_max(
        calls_max: usize,
        on_room: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Self {
        let limits = Limits { waiting_calls_max: calls_max, ..Limits::default() };
        Self::new(&limits, crate::limits::HELD_LEN_MAX, on_room)
    }

    /// The quota lives as long as a connection holds it.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<AddressShares> {
        let address = quota_address(address);
        let mut of = self.of.lock();
        if let Some(known) = of.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        // Amortised O(1): only before the map would grow.
        if of.len() == of.capacity() {
            of.retain(|_, shares| shares.strong_count() > 0);
        }
        let shares = Arc::new(AddressShares {
            calls: self.calls.share(),
            waiting_len: self.waiting_len.share(),
            held: self.held.share(),
            worked_ns: AtomicU64::new(0),
        });
        of.insert(address, Arc::downgrade(&shares));
        shares
    }
}

pub(crate) struct BlockedCharge {
    shares: Arc<AddressShares>,
    len: usize,
}

impl BlockedCharge {
    pub(crate) fn new(shares: Arc<AddressShares>, len: usize) -> Self {
        shares.waiting_len.charge(len);
        BlockedCharge { shares, len }
    }
}

impl Drop for BlockedCharge {
    fn drop(&mut self) {
        self.shares.waiting_len.release(self.len);
    }
}

/// Memory for incomplete calls, released on drop.
pub(crate) struct ReceiveCharge {
    shares: Arc<AddressShares>,
    len: usize,
}

impl ReceiveCharge {
    pub(crate) fn new(shares: Arc<AddressShares>) -> Self {
        ReceiveCharge { shares, len: 0 }
    }

    pub(crate) fn set(&mut self, len: usize) {
        if len > self.len {
            self.shares.held.charge(len - self.len);
        } else if len < self.len {
            self.shares.held.release(self.len - len);
        }
        self.len = len;
    }

    pub(crate) fn raise(&mut self, len: usize) -> bool {
        let more = len.saturating_sub(self.len);
        let room = more == 0 || self.shares.held.has_room(more);
        if room {
            self.set(self.len.max(len));
        }
        room
    }

    pub(crate) fn is_short(&self, len: usize) -> bool {
        !self.shares.held.fits(len)
    }
}

impl Drop for ReceiveCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HELD_LEN_MAX;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn greedy_address_waits_and_others_do_not() {
        let reliefs = Arc::new(Counter::default());
        let counter = reliefs.clone();
        let quotas = Quotas::with_calls_max(100, move || counter.add(1));
        let (greedy, other) = (quotas.of(address(1)), quotas.of(address(2)));
        let mut charged = 0;
        while greedy.calls.has_room(1) {
            greedy.calls.charge(1);
            charged += 1;
        }
        assert_eq!(charged, 80, "one address gets four fifths");
        for _ in 0..4 {
            assert!(other.calls.has_room(1));
            other.calls.charge(1);
        }
        assert!(!greedy.calls.has_room(1));
        assert_eq!((quotas.calls.used(), quotas.calls.refusals.get(), reliefs.get()), (84, 2, 0));
        other.calls.release(4);
        assert_eq!(reliefs.get(), 0);
        greedy.calls.release(16);
        assert_eq!(reliefs.get(), 0);
        greedy.calls.release(1);
        assert_eq!(reliefs.get(), 1);
        assert!(greedy.calls.has_room(1));
        greedy.calls.release(63);
        assert_eq!((quotas.calls.used(), reliefs.get()), (0, 1));
    }

    #[test]
    fn ipv6_network_has_one_share() {
        let quotas = Quotas::with_calls_max(100, || ());
        let of = |address: &str| quotas.of(address.parse().unwrap());
        assert!(Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8::ffff:1:2:3")));
        assert_eq!(
            quota_address("2001:db8::ffff:1:2:3".parse().unwrap()),
            "2001:db8::".parse::<IpAddr>().unwrap()
        );
        assert_ne!(
            quota_address("2001:db8:0:1::1".parse().unwrap()),
            quota_address("2001:db8::1".parse().unwrap())
        );
        assert_eq!(quota_address("::ffff:192.0.2.1".parse().unwrap()), address(1));
    }

    #[test]
    fn many_addresses_stay_below_the_limit() {
        let quotas = Quotas::with_calls_max(64, || ());
        let all: Vec<_> = (0..200).map(|last| quotas.of(address(last))).collect();
        for shares in all.iter().cycle().take(5000) {
            if shares.calls.has_room(1) {
                shares.calls.charge(1);
            }
        }
        assert_eq!(quotas.calls.used(), 63);
    }

    #[test]
    fn dropped_charge_releases_its_memory() {
        let quotas = Quotas::with_calls_max(1, || ());
        let mut one = ReceiveCharge::new(quotas.of(address(1)));
        one.set(10);
        assert!(one.raise(1 << 20) && one.raise(5));
        assert_eq!(quotas.held.used(), 1 << 20);
        one.set(7);
        let mut greedy = ReceiveCharge::new(quotas.of(address(2)));
        assert!(!greedy.raise(HELD_LEN_MAX / 5 * 4 + 1000));
        assert!(
            greedy.raise(HELD_LEN_MAX / 5 * 4 - 1000)
                && greedy.is_short(1 << 20)
                && !one.is_short(1 << 20)
        );
        drop((one, greedy));
        assert_eq!(quotas.held.used(), 0);
    }

    #[test]
    fn removes_addresses_without_connections() {
        let quotas = Quotas::with_calls_max(1, || ());
        let kept = quotas.of(address(1));
        for number in 0..10_000u32 {
            quotas.of(IpAddr::from(number.to_be_bytes()));
        }
        assert!(quotas.of.lock().len() < 100);
        assert!(Arc::ptr_eq(&kept, &quotas.of(address(1))));
    }
}
