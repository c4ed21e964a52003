//! The rules in force. Each operation asks them, and they hardly ever change: so each thread keeps
//! them at hand, and what all threads share is only read.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use vouch_audit::rules::Rules;

/// Rules that can be replaced.
pub struct InForce {
    rules: RwLock<Arc<Rules>>,
    /// Which these are, of all that any trail of this process has had.
    number: AtomicU64,
    /// Operations that they may record, the lower half first: what is asked most.
    recorded: [AtomicU64; 2],
}

thread_local! {
    /// What this thread asked last: its number, and the rules.
    static AT_HAND: RefCell<Option<(u64, Arc<Rules>)>> = const { RefCell::new(None) };
}

impl InForce {
    /// Puts these rules in force.
    pub fn new(rules: Arc<Rules>) -> Self {
        let recorded = halves(&rules).map(AtomicU64::new);
        InForce { rules: RwLock::new(rules), number: AtomicU64::new(next()), recorded }
    }

    /// Puts others in their place, and returns those.
    pub fn replace(&self, rules: Arc<Rules>) -> Arc<Rules> {
        let mut place = self.rules.write();
        // Numbers and rules are read together under the lock.
        self.number.store(next(), Ordering::Release);
        self.recorded.iter().zip(halves(&rules)).for_each(|(recorded, half)| recorded.store(half, Ordering::Release));
        std::mem::replace(&mut *place, rules)
    }

    /// Whether they may record this operation.
    pub fn may_record(&self, operation: u16) -> bool {
        let half = self.recorded.get(usize::from(operation / 64));
        half.is_some_and(|half| half.load(Ordering::Acquire) >> (operation % 64) & 1 == 1)
    }

    /// Asks the rules. What asks them must not ask again from within.
    pub fn with<R>(&self, ask: impl FnOnce(&Rules) -> R) -> R {
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

fn halves(rules: &Rules) -> [u64; 2] {
    let all = rules.recorded_operations();
    [all as u64, (all >> 64) as u64]
}

fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use vouch_audit::operations::number::{GETATTR, REMOVEXATTR};
    use vouch_audit::rules::Resolve;

    use super::*;

    struct Nobody;

    impl Resolve for Nobody {
        fn user(&self, _: &str) -> Option<u32> {
            None
        }

        fn group(&self, _: &str) -> Option<u32> {
            None
        }
    }

    #[test]
    fn what_may_be_recorded_is_what_the_rules_say_also_after_others_came() {
        let rules = |text: &str| Arc::new(Rules::parse(text, &Nobody).unwrap());
        let texts = ["-a always,exit -S getattr", "-a always,exit -S removexattr", "-a never,exit -S getattr", ""];
        let in_force = InForce::new(Arc::new(Rules::everything()));
        let agree = || (0..=u16::MAX).all(|op| in_force.may_record(op) == in_force.with(|rules| rules.may_record(op)));
        assert!(agree() && in_force.may_record(GETATTR) && in_force.may_record(REMOVEXATTR));
        for text in texts {
            in_force.replace(rules(text));
            assert!(agree(), "{text}");
        }
        assert!(!in_force.may_record(GETATTR));
    }
}
