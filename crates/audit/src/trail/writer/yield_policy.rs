//! Decides when the writer yields the CPU while it hashes a group of records.

use std::time::{Duration, Instant};

/// Yields after every few records if no reply waits for them. Otherwise a woken worker thread would
/// wait until the whole group is hashed. The time is limited, so that a busy machine does not
/// starve the writer.
pub(super) struct Courtesy {
    until: Option<Instant>,
    appended: u32,
}

impl Courtesy {
    /// `is_awaited` means that replies wait for the records.
    pub(super) fn new(is_awaited: bool, now: Instant) -> Self {
        Courtesy { until: (!is_awaited).then(|| now + COURTESY_MAX), appended: 0 }
    }

    /// Call for each appended record.
    #[inline]
    pub(super) fn is_due(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.appended += 1;
        if self.appended < COURTESY_STEP {
            return false;
        }
        self.appended = 0;
        self.until = self.until.filter(|until| now() < *until);
        self.until.is_some()
    }
}

/// Records between two yields, a few microseconds of hashing.
const COURTESY_STEP: u32 = 24;
/// Yielding stops at this age of a group.
const COURTESY_MAX: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yields_for_limited_time_unless_replies_wait() {
        let start = Instant::now();
        let due = |courtesy: &mut Courtesy, count, at: Instant| (0..count).filter(|_| courtesy.is_due(|| at)).count();
        let mut awaited = Courtesy::new(true, start);
        assert_eq!(due(&mut awaited, 1000, start), 0);
        let mut courtesy = Courtesy::new(false, start);
        assert_eq!(due(&mut courtesy, COURTESY_STEP * 3 - 1, start), 2);
        assert_eq!(due(&mut courtesy, COURTESY_STEP * 100, start + COURTESY_MAX), 0, "a group that takes long is not made longer");
    }
}
