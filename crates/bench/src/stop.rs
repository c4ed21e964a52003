//! A wish to stop, seen by everybody who works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clones are the same wish.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Whether who has it is to go on all the same.
    cleans: bool,
}

impl Stop {
    /// Asks all to stop.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked.
    pub fn asked(&self) -> bool {
        !self.cleans && self.hurries()
    }

    /// The same for who removes what was made: it goes on, but does not wait long for who is silent
    /// once somebody has asked.
    #[must_use]
    pub fn of_cleaning(&self) -> Self {
        Self { asked: self.asked.clone(), cleans: true }
    }

    /// Whether somebody waits for the end.
    pub fn hurries(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cleans_goes_on_and_hurries() {
        let stop = Stop::default();
        let cleaning = stop.of_cleaning();
        assert!(!cleaning.hurries());
        stop.ask();
        assert!(stop.asked() && stop.hurries() && cleaning.hurries() && !cleaning.asked());
    }
}
