//! What there is only so much of for all, and how much of it one address may have: four times what
//! is left. One that is alone gets most, and always leaves some; where there are many, each gets
//! what the others leave. So whoever takes too much is the one who waits.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::limits::{Limits, SHARE};
use crate::monitoring::counter::Count;

/// Whose share it is: of IPv6 the network that one host has for itself, since it picks the other
/// half of its address as it likes (RFC 4291, section 2.5.1).
pub(crate) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// Something of which there is so much for all.
pub(crate) struct Common {
    max: usize,
    used: AtomicUsize,
    /// How much was used when somebody was last told to wait; 0 if nobody waits.
    stopped_at: AtomicUsize,
    /// How often somebody was.
    pub(crate) stops: Count,
    /// Called when there is room again for those who were told that there is none.
    relief: Box<dyn Fn() + Send + Sync>,
}

/// What one address has of it.
pub(crate) struct Share {
    of: Arc<Common>,
    used: AtomicUsize,
}

impl Common {
    fn new(max: usize, relief: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let (used, stopped_at) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Common { max, used, stopped_at, stops: Count::default(), relief: Box::new(relief) })
    }

    fn share(self: &Arc<Self>) -> Share {
        Share { of: self.clone(), used: AtomicUsize::new(0) }
    }

    /// How much all use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Share {
    /// Whether there is room for so much more.
    fn fits(&self, n: usize) -> bool {
        let left = self.of.max.saturating_sub(self.of.used.load(Ordering::SeqCst).saturating_add(n));
        self.used.load(Ordering::SeqCst).saturating_add(n) <= left.saturating_mul(SHARE)
    }

    /// Whether there is room for so much more. If not, [`Common::relief`] is called when it is
    /// worth asking again.
    pub(crate) fn may_take(&self, n: usize) -> bool {
        if self.fits(n) {
            return true;
        }
        self.of.stopped_at.fetch_max(self.of.used.load(Ordering::SeqCst).max(1), Ordering::SeqCst);
        // Something may have been given back between the question and the mark.
        if self.fits(n) {
            return true;
        }
        self.of.stops.add(1);
        false
    }

    /// Takes so much, room or not.
    pub(crate) fn take(&self, n: usize) {
        self.used.fetch_add(n, Ordering::SeqCst);
        self.of.used.fetch_add(n, Ordering::SeqCst);
    }

    /// Gives so much back.
    pub(crate) fn give(&self, n: usize) {
        self.used.fetch_sub(n, Ordering::SeqCst);
        let left = self.of.used.fetch_sub(n, Ordering::SeqCst) - n;
        let at = self.of.stopped_at.load(Ordering::SeqCst);
        // A quarter less: four times that is more than anybody had.
        if at > 0 && left <= at - at / 4 && self.of.stopped_at.swap(0, Ordering::SeqCst) > 0 {
            (self.of.relief)();
        }
    }
}

/// The shares of one address.
pub(crate) struct Shares {
    /// Of calls that wait.
    pub(crate) calls: Share,
    /// Of the bytes of those.
    pub(crate) waiting_len: Share,
    /// Of bytes of calls that have not come whole.
    held: Share,
}

/// All of it.
pub(crate) struct Commons {
    pub(crate) calls: Arc<Common>,
    pub(crate) waiting_len: Arc<Common>,
    pub(crate) held: Arc<Common>,
    of: Mutex<HashMap<IpAddr, Weak<Shares>>>,
}

impl Commons {
    pub(crate) fn bounded(limits: &Limits, held_len_max: usize, relief: impl Fn() + Clone + Send + Sync + 'static) -> Self {
        Commons {
            calls: Common::new(limits.waiting_calls_max, relief.clone()),
            waiting_len: Common::new(limits.waiting_len_max, relief.clone()),
            held: Common::new(held_len_max, relief),
            of: Mutex::default(),
        }
    }

    /// With room for so many calls that wait, and all else as usual.
    #[cfg(test)]
    pub(crate) fn new(calls_max: usize, relief: impl Fn() + Clone + Send + Sync + 'static) -> Self {
        let limits = Limits { waiting_calls_max: calls_max, ..Limits::default() };
        Self::bounded(&limits, crate::limits::HELD_LEN_MAX, relief)
    }

    /// Those of an address, for one more connection. Kept as long as there is one.
    pub(crate) fn of(&self, address: IpAddr) -> Arc<Shares> {
        let address = origin(address);
        let mut of = self.of.lock();
        if let Some(known) = of.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        // All that are gone, each time that there would have to be more room: O(1) for each address in the
        // long run.
        if of.len() == of.capacity() {
            of.retain(|_, shares| shares.strong_count() > 0);
        }
        let shares = Arc::new(Shares { calls: self.calls.share(), waiting_len: self.waiting_len.share(), held: self.held.share() });
        of.insert(address, Arc::downgrade(&shares));
        shares
    }
}

/// Memory that a call keeps while it waits.
pub(crate) struct Room {
    shares: Arc<Shares>,
    len: usize,
}

impl Room {
    /// Takes it, whether there is as much or not.
    pub(crate) fn new(shares: Arc<Shares>, len: usize) -> Self {
        shares.waiting_len.take(len);
        Room { shares, len }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shares.waiting_len.give(self.len);
    }
}

/// What a connection keeps of its address's share of memory.
pub(crate) struct Charge {
    shares: Arc<Shares>,
    len: usize,
}

impl Charge {
    pub(crate) fn new(shares: Arc<Shares>) -> Self {
        Charge { shares, len: 0 }
    }

    /// It keeps so much now, room or not.
    pub(crate) fn set(&mut self, len: usize) {
        if len > self.len {
            self.shares.held.take(len - self.len);
        } else if len < self.len {
            self.shares.held.give(self.len - len);
        }
        self.len = len;
    }

    /// It keeps at least so much, if there is room.
    pub(crate) fn raise(&mut self, len: usize) -> bool {
        let more = len.saturating_sub(self.len);
        let room = more == 0 || self.shares.held.may_take(more);
        if room {
            self.set(self.len.max(len));
        }
        room
    }

    /// Whether there would be no room for this, and nobody is to be told when there is.
    pub(crate) fn is_short(&self, len: usize) -> bool {
        !self.shares.held.fits(len)
    }
}

impl Drop for Charge {
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
    fn who_takes_too_much_waits_and_others_do_not() {
        let reliefs = Arc::new(Count::default());
        let told = reliefs.clone();
        let commons = Commons::new(100, move || told.add(1));
        let (greedy, other) = (commons.of(address(1)), commons.of(address(2)));
        let mut taken = 0;
        while greedy.calls.may_take(1) {
            greedy.calls.take(1);
            taken += 1;
        }
        assert_eq!(taken, 80, "four fifths");
        for _ in 0..4 {
            assert!(other.calls.may_take(1));
            other.calls.take(1);
        }
        assert!(!greedy.calls.may_take(1));
        assert_eq!((commons.calls.used(), commons.calls.stops.get(), reliefs.get()), (84, 2, 0));
        // The other's end does not yet make it worth asking again; a quarter of all does, once.
        other.calls.give(4);
        assert_eq!(reliefs.get(), 0);
        greedy.calls.give(16);
        assert_eq!(reliefs.get(), 0);
        greedy.calls.give(1);
        assert_eq!(reliefs.get(), 1);
        assert!(greedy.calls.may_take(1));
        greedy.calls.give(63);
        assert_eq!((commons.calls.used(), reliefs.get()), (0, 1));
    }

    #[test]
    fn a_host_has_one_share_whatever_half_of_its_address_it_picks() {
        let commons = Commons::new(100, || ());
        let of = |address: &str| commons.of(address.parse().unwrap());
        assert!(Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8::ffff:1:2:3")));
        assert_eq!(origin("2001:db8::ffff:1:2:3".parse().unwrap()), "2001:db8::".parse::<IpAddr>().unwrap());
        assert_ne!(origin("2001:db8:0:1::1".parse().unwrap()), origin("2001:db8::1".parse().unwrap()));
        assert_eq!(origin("::ffff:192.0.2.1".parse().unwrap()), address(1));
    }

    #[test]
    fn many_fill_it_and_no_more() {
        let commons = Commons::new(64, || ());
        let all: Vec<_> = (0..200).map(|last| commons.of(address(last))).collect();
        for shares in all.iter().cycle().take(5000) {
            if shares.calls.may_take(1) {
                shares.calls.take(1);
            }
        }
        assert_eq!(commons.calls.used(), 63);
    }

    #[test]
    fn what_a_connection_keeps_goes_with_it() {
        let commons = Commons::new(1, || ());
        let mut one = Charge::new(commons.of(address(1)));
        one.set(10);
        assert!(one.raise(1 << 20) && one.raise(5));
        assert_eq!(commons.held.used(), 1 << 20);
        one.set(7);
        let mut greedy = Charge::new(commons.of(address(2)));
        assert!(!greedy.raise(HELD_LEN_MAX / 5 * 4 + 1000));
        assert!(greedy.raise(HELD_LEN_MAX / 5 * 4 - 1000) && greedy.is_short(1 << 20) && !one.is_short(1 << 20));
        drop((one, greedy));
        assert_eq!(commons.held.used(), 0);
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let commons = Commons::new(1, || ());
        let kept = commons.of(address(1));
        for number in 0..10_000u32 {
            commons.of(IpAddr::from(number.to_be_bytes()));
        }
        assert!(commons.of.lock().len() < 100);
        assert!(Arc::ptr_eq(&kept, &commons.of(address(1))));
    }
}
