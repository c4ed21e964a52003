//! Request to stop a run, shared by all its threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is set once. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    requested: Arc<AtomicBool>,
    /// The holder cleans up, and so goes on after the request.
    cleanup: bool,
}

impl StopFlag {
    pub fn set(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Always false for the flag of cleanup.
    pub fn is_set(&self) -> bool {
        !self.cleanup && self.must_hurry()
    }

    #[must_use]
    pub(crate) fn for_cleanup(&self) -> Self {
        Self { requested: self.requested.clone(), cleanup: true }
    }

    /// True after the request, when timeouts are short.
    pub(crate) fn must_hurry(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleanup_hurries_but_does_not_stop() {
        let stop = StopFlag::default();
        let cleanup = stop.for_cleanup();
        assert!(!cleanup.must_hurry());
        stop.set();
        assert!(stop.is_set() && stop.must_hurry() && cleanup.must_hurry() && !cleanup.is_set());
    }
}
