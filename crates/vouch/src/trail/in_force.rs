//! The rules in force. Each operation asks them, and they hardly ever change: so each thread keeps them at hand, and what all threads share is only read.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use vouch_audit::rules::Rules;

/// Rules that can be replaced.
pub(crate) struct InForce {
    rules: RwLock<Arc<Rules>>,
    /// Which these are, of all that any trail of this process has had.
    number: AtomicU64,
}

thread_local! {
    /// What this thread asked last: its number, and the rules.
    static AT_HAND: RefCell<Option<(u64, Arc<Rules>)>> = const { RefCell::new(None) };
}

impl InForce {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        InForce { rules: RwLock::new(rules), number: AtomicU64::new(next()) }
    }

    /// Puts others in their place, and returns those.
    pub(crate) fn replace(&self, rules: Arc<Rules>) -> Arc<Rules> {
        let mut place = self.rules.write();
        // Numbers and rules are read together under the lock.
        self.number.store(next(), Ordering::Release);
        std::mem::replace(&mut *place, rules)
    }

    /// Asks the rules. What asks them must not ask again from within.
    pub(crate) fn with<R>(&self, ask: impl FnOnce(&Rules) -> R) -> R {
        let number = self.number.load(Ordering::Acquire);
        AT_HAND.with_borrow_mut(|at_hand| {
            let (_, rules) = match at_hand {
                Some(known) if known.0 == number => known,
                other => {
                    let place = self.rules.read();
                    other.insert((self.number.load(Ordering::Acquire), place.clone()))
                }
            };
            ask(rules)
        })
    }
}

fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
