//! The wall clock, as a parameter. Time-outs use tokio's clock, which tests can pause.

use std::time::{SystemTime, UNIX_EPOCH};

/// A source of the time of day.
pub trait Clock: Send + Sync + 'static {
    /// Seconds since 1970. May be wrong and may run backward.
    fn now(&self) -> i64;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
        }
    }
}
