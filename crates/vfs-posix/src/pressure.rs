//! Whether the system holds writers up: with too many dirty pages in memory, write(2) sleeps in the
//! kernel until some are on the disk (balance_dirty_pages), and nothing tells beforehand. So the
//! time that writes take is watched, and once one took long, those that must not sleep are not
//! tried for a while.
//!
//! Never reads the clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is known of one file system.
#[derive(Default)]
pub(crate) struct Pressure {
    /// Until when writers are thought to be held up, milliseconds; 0 if they aren't.
    until_ms: AtomicU64,
}

impl Pressure {
    /// Whether a write would probably sleep. Costs a load where none does.
    pub(crate) fn is_on(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms != 0 && {
            let on = now_ms() < until_ms;
            if !on {
                // Whoever saw the same end first has said so.
                let _ = self.until_ms.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            on
        }
    }

    /// A write took so long.
    pub(crate) fn note(&self, took: Duration, now_ms: impl FnOnce() -> u64) {
        if took >= LONG {
            self.until_ms.fetch_max(now_ms() + BELIEVED_MS, Ordering::Relaxed);
        }
    }
}

/// The kernel's pauses are ten milliseconds and more, up to two hundred; a write of a megabyte into
/// memory takes below one, and waiting for a processor seldom ten.
const LONG: Duration = Duration::from_millis(10);

/// For how long one that took long is believed to be followed by others. As long as others do, in
/// threads that may sleep, this goes on.
const BELIEVED_MS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_write_keeps_others_from_those_that_must_not_sleep_and_not_for_ever() {
        let pressure = Pressure::default();
        pressure.note(Duration::from_millis(1), || panic!("nor for a short write"));
        assert!(!pressure.is_on(|| panic!("the clock is not asked for where nothing is known")));
        pressure.note(LONG, || 100);
        assert!(pressure.is_on(|| 100) && pressure.is_on(|| 100 + BELIEVED_MS - 1));
        // One that took long meanwhile.
        pressure.note(2 * LONG, || 500);
        pressure.note(LONG, || 400);
        assert!(pressure.is_on(|| 500 + BELIEVED_MS - 1));
        assert!(!pressure.is_on(|| 500 + BELIEVED_MS));
        assert!(!pressure.is_on(|| panic!("the clock is not asked for once it is over")));
    }
}
