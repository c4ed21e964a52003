//! The check before each operation, reply and write to the state directory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Shared by all threads of a head.
#[derive(Debug, Default)]
pub(crate) struct ServingRight {
    /// On [`clock_ns`].
    valid_until_ns: AtomicU64,
    /// Later than this, the head ends by itself.
    stop_at_ns: AtomicU64,
    is_lost: AtomicBool,
}

impl ServingRight {
    pub(crate) fn is_valid(&self) -> bool {
        clock_ns() < self.valid_until_ns.load(Ordering::Acquire)
    }

    /// The head has to end: another one has taken over, or a renewal is long due.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
            || clock_ns() >= self.stop_at_ns.load(Ordering::Acquire)
    }

    pub(crate) fn left_ms(&self) -> u64 {
        self.valid_until_ns.load(Ordering::Acquire).saturating_sub(clock_ns()) / 1_000_000
    }

    pub(super) fn extend(&self, valid_until_ns: u64, stop_before_ns: u64) {
        if !self.is_lost.load(Ordering::Acquire) {
            self.stop_at_ns.store(valid_until_ns.saturating_sub(stop_before_ns), Ordering::Release);
            self.valid_until_ns.store(valid_until_ns, Ordering::Release);
        }
    }

    #[cfg(test)]
    pub(crate) fn of_a_day() -> Self {
        let right = ServingRight::default();
        right.extend(clock_ns() + 86_400_000_000_000, 1000);
        right
    }

    pub(crate) fn end(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.valid_until_ns.store(0, Ordering::Release);
    }
}

/// Monotonic, exact, and goes on while the machine is suspended.
pub(super) fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_ends_with_the_lease_and_with_a_takeover() {
        let right = ServingRight::default();
        assert!(!right.is_valid() && right.is_ending());
        let day_ns = 86_400_000_000_000;
        right.extend(clock_ns() + day_ns, 1000);
        assert!(right.is_valid() && !right.is_ending());
        right.extend(clock_ns() + day_ns, 2 * day_ns);
        assert!(right.is_valid() && right.is_ending());
        right.end();
        right.extend(clock_ns() + day_ns, 1000);
        assert!(!right.is_valid() && right.is_ending());
    }
}
