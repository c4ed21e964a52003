//! Each thread caches the rules, because operations read them often.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use vouch_audit::rules::Rules;

pub struct ActiveRules {
    rules: RwLock<Arc<Rules>>,
    generation: AtomicU64,
    recorded: [AtomicU64; 2],
}

thread_local! {
    static CACHED_RULES: RefCell<Option<(u64, Arc<Rules>)>> = const { RefCell::new(None) };
}

impl ActiveRules {
    pub fn new(rules: Arc<Rules>) -> Self {
        let recorded = halves(&rules).map(AtomicU64::new);
        ActiveRules {
            rules: RwLock::new(rules),
            generation: AtomicU64::new(next_generation()),
            recorded,
        }
    }

    pub fn replace(&self, rules: Arc<Rules>) -> Arc<Rules> {
        let mut current = self.rules.write();
        self.generation.store(next_generation(), Ordering::Release);
        self.recorded
            .iter()
            .zip(halves(&rules))
            .for_each(|(recorded, half)| recorded.store(half, Ordering::Release));
        std::mem::replace(&mut *current, rules)
    }

    pub fn may_record(&self, operation: u16) -> bool {
        let half = self.recorded.get(usize::from(operation / 64));
        half.is_some_and(|half| half.load(Ordering::Acquire) >> (operation % 64) & 1 == 1)
    }

    pub fn with<R>(&self, act: impl FnOnce(&Rules) -> R) -> R {
        let generation = self.generation.load(Ordering::Acquire);
        CACHED_RULES.with_borrow_mut(|cached| {
            let (_, rules) = match cached {
                Some(known) if known.0 == generation => known,
                other => {
                    let current = self.rules.read();
                    other.insert((self.generation.load(Ordering::Acquire), current.clone()))
                }
            };
            act(rules)
        })
    }
}

fn halves(rules: &Rules) -> [u64; 2] {
    let all = rules.recorded_operations();
    [all as u64, (all >> 64) as u64]
}

fn next_generation() -> u64 {
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
    fn operation_filter_follows_replaced_rules() {
        let rules = |text: &str| Arc::new(Rules::parse(text, &Nobody).unwrap());
        let texts = [
            "-a always,exit -S getattr",
            "-a always,exit -S removexattr",
            "-a never,exit -S getattr",
            "",
        ];
        let active = ActiveRules::new(Arc::new(Rules::everything()));
        let agree = || {
            (0..=u16::MAX)
                .all(|op| active.may_record(op) == active.with(|rules| rules.may_record(op)))
        };
        assert!(agree() && active.may_record(GETATTR) && active.may_record(REMOVEXATTR));
        for text in texts {
            active.replace(rules(text));
            assert!(agree(), "{text}");
        }
        assert!(!active.may_record(GETATTR));
    }
}
