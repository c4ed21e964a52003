//! Decides when the writer yields the CPU while it hashes a group.

use std::time::{Duration, Instant};

/// Woken workers need not wait for a group to be hashed. Yields after a few records unless a reply
/// waits, within a limit.
pub(super) struct YieldPolicy {
    until: Option<Instant>,
    appended: u32,
}

impl YieldPolicy {
    pub(super) fn new(has_waiting_replies: bool, now: Instant) -> Self {
        YieldPolicy { until: (!has_waiting_replies).then(|| now + YIELD_TIME_MAX), appended: 0 }
    }

    #[inline]
    pub(super) fn should_yield(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.appended += 1;
        if self.appended < YIELD_STEP {
            return false;
        }
        self.appended = 0;
        self.until = self.until.filter(|until| now() < *until);
        self.until.is_some()
    }
}

const YIELD_STEP: u32 = 24;
const YIELD_TIME_MAX: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_for_limited_time_unless_replies_wait() {
        let start = Instant::now();
        let count_yields = |yield_policy: &mut YieldPolicy, count, at: Instant| {
            (0..count).filter(|_| yield_policy.should_yield(|| at)).count()
        };
        let mut has_waiting_replies = YieldPolicy::new(true, start);
        assert_eq!(count_yields(&mut has_waiting_replies, 1000, start), 0);
        let mut yield_policy = YieldPolicy::new(false, start);
        assert_eq!(count_yields(&mut yield_policy, YIELD_STEP * 3 - 1, start), 2);
        assert_eq!(
            count_yields(&mut yield_policy, YIELD_STEP * 100, start + YIELD_TIME_MAX),
            0,
            "no yields in an old group"
        );
    }
}
