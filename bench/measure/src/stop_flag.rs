use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    requested: Arc<AtomicBool>,
    cleanup: bool,
}

impl StopFlag {
    pub fn set(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        !self.cleanup && self.must_hurry()
    }

    #[must_use]
    pub(crate) fn for_cleanup(&self) -> Self {
        Self { requested: self.requested.clone(), cleanup: true }
    }

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
