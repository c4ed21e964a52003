//! A bounded cache whose entries expire: soon where the answer was no, so that a new account is not refused for long, and at once where nobody answered.

use std::cell::RefCell;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use quick_cache::sync;
use vouch_nfs4_server::WouldWait;
use vouch_vfs::Patience;

use super::service::Silent;
use super::would_wait;
use crate::export::clock;

pub(super) struct Cache<K, V> {
    entries: sync::Cache<K, Entry<V>>,
    /// Another one each time that all is forgotten, and no other cache's.
    age: AtomicU64,
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    until_ms: u64,
    age: Age,
}

/// What an answer was asked in: what was asked for before all was forgotten is not remembered after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Age(u64);

impl Age {
    fn new() -> Age {
        static AGES: AtomicU64 = AtomicU64::new(0);
        Age(AGES.fetch_add(1, Ordering::SeqCst))
    }
}

/// What a thread found last in a cache of these.
pub(super) struct Lately<K, V>([Option<(K, Entry<V>)>; LATELY]);

impl<K, V> Lately<K, V> {
    pub(super) const fn new() -> Self {
        Lately([const { None }; LATELY])
    }
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// Something is known.
    Yes,
    /// There is no such thing.
    No,
    /// Nobody answered: what was made of that is not true for longer than it takes to ask again without a flood of questions.
    Nothing,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Cache { entries: sync::Cache::new(entries_max), age: AtomicU64::new(Age::new().0) }
    }

    /// What is known and has not expired; first by what this thread found last, as each look at a table that threads share writes to memory that they share.
    pub(super) fn get(&self, lately: &'static LocalKey<RefCell<Lately<K, V>>>, key: &K) -> Option<V> {
        lately.with_borrow_mut(|lately| {
            if let Some((_, entry)) = lately.0.iter().flatten().find(|(known, entry)| known == key && self.holds(entry)) {
                return Some(entry.value.clone());
            }
            let entry = self.entries.get(key).filter(|entry| self.holds(entry))?;
            lately.0.rotate_right(1);
            lately.0[0] = Some((key.clone(), entry.clone()));
            Some(entry.value)
        })
    }

    fn holds(&self, entry: &Entry<V>) -> bool {
        entry.age == self.age() && clock::mono_ms() < entry.until_ms
    }

    /// To be asked before anything that an answer depends on is looked at.
    pub(super) fn age(&self) -> Age {
        Age(self.age.load(Ordering::SeqCst))
    }

    /// Remembers an answer that was asked for in this age.
    pub(super) fn put(&self, key: K, value: V, worth: Worth, age: Age) {
        let life_ms = match worth {
            Worth::Yes => LIFE_MS,
            Worth::No => LIFE_OF_NO_MS,
            Worth::Nothing => LIFE_OF_NOTHING_MS,
        };
        self.entries.insert(key, Entry { value, until_ms: clock::mono_ms() + life_ms, age });
    }

    pub(super) fn clear(&self) {
        self.age.store(Age::new().0, Ordering::SeqCst);
        self.entries.clear();
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Cache<K, Option<T>> {
    /// What is known, or what `ask` says if that may sleep; nothing where nobody answers.
    pub(super) fn get_or(
        &self,
        lately: &'static LocalKey<RefCell<Lately<K, Option<T>>>>,
        key: &K,
        patience: Patience,
        ask: impl FnOnce() -> Result<Option<T>, Silent>,
    ) -> Result<Option<T>, WouldWait> {
        if let Some(known) = self.get(lately, key) {
            return Ok(known);
        }
        if patience == Patience::None {
            return Err(would_wait());
        }
        let age = self.age();
        let (answer, worth) = match ask() {
            Ok(Some(answer)) => (Some(answer), Worth::Yes),
            Ok(None) => (None, Worth::No),
            Err(Silent) => (None, Worth::Nothing),
        };
        self.put(key.clone(), answer.clone(), worth, age);
        Ok(answer)
    }
}

/// Owners whose files one looks at come in turn, but few.
const LATELY: usize = 4;
/// As long as idmapd believes its answers.
const LIFE_MS: u64 = 600_000;
const LIFE_OF_NO_MS: u64 = 30_000;
const LIFE_OF_NOTHING_MS: u64 = 1_000;
