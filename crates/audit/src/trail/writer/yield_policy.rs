//! How the writer behaves to threads that want the CPU while it hashes a group of records. Knows
//! nothing of records, and never reads the clock.

use std::time::{Duration, Instant};

/// Says when others may have the CPU, between a few records, where no reply waits for these: who is
/// woken while a whole group is hashed waits for that long otherwise, and those are the threads
/// whose calls are recorded. Not for long, so that a machine that is fully used doesn't keep the
/// writer from its work.
pub(super) struct Courtesy {
    until: Option<Instant>,
    appended: u32,
}

impl Courtesy {
    /// `is_awaited`: replies wait for the records.
    pub(super) fn new(is_awaited: bool, now: Instant) -> Self {
        Courtesy { until: (!is_awaited).then(|| now + COURTESY_MAX), appended: 0 }
    }

    /// To be asked for each record that is appended.
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

/// Records between which others have the CPU: some microseconds of hashing.
const COURTESY_STEP: u32 = 24;
/// How old a group may be whose rest waits for others.
const COURTESY_MAX: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_go_first_for_a_while_and_not_where_replies_wait() {
        let start = Instant::now();
        let due = |courtesy: &mut Courtesy, count, at: Instant| (0..count).filter(|_| courtesy.is_due(|| at)).count();
        let mut awaited = Courtesy::new(true, start);
        assert_eq!(due(&mut awaited, 1000, start), 0);
        let mut courtesy = Courtesy::new(false, start);
        assert_eq!(due(&mut courtesy, COURTESY_STEP * 3 - 1, start), 2);
        assert_eq!(due(&mut courtesy, COURTESY_STEP * 100, start + COURTESY_MAX), 0, "a group that takes long is not made longer");
    }
}
