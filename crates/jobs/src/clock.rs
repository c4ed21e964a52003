//! The time, as a value that tests move.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    pub(crate) fn system() -> Self {
        Self(Arc::new(|| {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
        }))
    }

    /// A clock that shows this number of seconds.
    #[cfg(test)]
    pub(crate) fn of(seconds: Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self(Arc::new(move || seconds.load(std::sync::atomic::Ordering::Relaxed)))
    }

    /// Seconds since 1970.
    pub(crate) fn now_s(&self) -> u64 {
        (self.0)()
    }
}
