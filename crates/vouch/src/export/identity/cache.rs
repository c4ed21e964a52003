//! A bounded cache whose entries expire: soon where the answer was no, so that a new account is not refused for long.

use std::hash::Hash;

use quick_cache::sync;
use vouch_nfs4_server::WouldWait;
use vouch_vfs::Patience;

use crate::export::clock;

pub(super) struct Cache<K, V>(sync::Cache<K, (V, u64)>);

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Cache(sync::Cache::new(entries_max))
    }

    /// What is known and has not expired.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let (value, until_ms) = self.0.get(key)?;
        (clock::mono_ms() < until_ms).then_some(value)
    }

    pub(super) fn put(&self, key: K, value: V, positive: bool) {
        let life_ms = if positive { LIFE_MS } else { LIFE_OF_NO_MS };
        self.0.insert(key, (value, clock::mono_ms() + life_ms));
    }

    pub(super) fn clear(&self) {
        self.0.clear();
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Cache<K, Option<T>> {
    /// What is known, or what `ask` says if that may sleep.
    pub(super) fn get_or(&self, key: &K, patience: Patience, ask: impl FnOnce() -> Option<T>) -> Result<Option<T>, WouldWait> {
        if let Some(known) = self.get(key) {
            return Ok(known);
        }
        if patience == Patience::None {
            return Err(WouldWait);
        }
        let answer = ask();
        self.put(key.clone(), answer.clone(), answer.is_some());
        Ok(answer)
    }
}

/// As long as idmapd believes its answers.
const LIFE_MS: u64 = 600_000;
const LIFE_OF_NO_MS: u64 = 30_000;
