//! Detects throttling of writers: with too many dirty pages, write(2) blocks in the kernel
//! (balance_dirty_pages). After a slow write, non-blocking writes are avoided for a while. The
//! caller passes the clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct WriteThrottle {
    /// End of the assumed throttling; 0 if none.
    until_ms: AtomicU64,
}

impl WriteThrottle {
    /// A write would probably block.
    pub(crate) fn is_on(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms != 0 && {
            let on = now_ms() < until_ms;
            if !on {
                // Another thread may have cleared it.
                let _ = self.until_ms.compare_exchange(
                    until_ms,
                    0,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
            on
        }
    }

    pub(crate) fn note(&self, took: Duration, now_ms: impl FnOnce() -> u64) {
        if took >= SLOW_WRITE_MIN {
            self.until_ms.fetch_max(now_ms() + ASSUMED_MS, Ordering::Relaxed);
        }
    }
}

/// Throttling pauses take 10 to 200 ms; a write of 1 MB into memory less than 1 ms, a wait for a
/// CPU rarely 10 ms.
const SLOW_WRITE_MIN: Duration = Duration::from_millis(10);

/// Throttling is assumed for this time after each slow write.
const ASSUMED_MS: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_write_suspends_non_blocking_writes_for_limited_time() {
        let pressure = WriteThrottle::default();
        pressure
            .note(Duration::from_millis(1), || panic!("the clock is not read for a short write"));
        assert!(!pressure.is_on(|| panic!("the clock is not read before a slow write")));
        pressure.note(SLOW_WRITE_MIN, || 100);
        assert!(pressure.is_on(|| 100) && pressure.is_on(|| 100 + ASSUMED_MS - 1));
        pressure.note(2 * SLOW_WRITE_MIN, || 500);
        pressure.note(SLOW_WRITE_MIN, || 400);
        assert!(pressure.is_on(|| 500 + ASSUMED_MS - 1));
        assert!(!pressure.is_on(|| 500 + ASSUMED_MS));
        assert!(!pressure.is_on(|| panic!("the clock is not read after the suspension")));
    }
}
