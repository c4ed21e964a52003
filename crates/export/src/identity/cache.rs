//! Bounded cache of name service answers. Negative answers expire sooner, so that a new account
//! works soon. During an outage, old answers stay valid within limits.

use std::cell::RefCell;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use quick_cache::sync;
use vouch_nfs4_server::Unanswered;
use vouch_vfs::Blocking;

use super::service::NameServiceDown;
use super::would_wait::would_wait;
use crate::clock;

pub(super) type Answer<T> = Result<Option<T>, NameServiceDown>;

pub(super) struct Cache<K, T> {
    entries: sync::Cache<K, Entry<T>>,
    lifetimes: Lifetimes,
    generation: AtomicU64,
}

#[derive(Clone, Copy)]
pub(super) struct Lifetimes {
    pub(super) yes_ms: u64,
    pub(super) no_ms: u64,
    /// Pause after a failure, so that the name service is not flooded.
    pub(super) silence_ms: u64,
    pub(super) last_ms: u64,
}

#[derive(Clone)]
struct Entry<T> {
    answer: Answer<T>,
    until_ms: u64,
    last_until_ms: u64,
    generation: Generation,
}

/// A clear of the cache drops answers of earlier generations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl Generation {
    fn new() -> Generation {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        Generation(GENERATIONS.fetch_add(1, Ordering::SeqCst))
    }
}

pub(super) struct RecentEntries<K, T>([Option<(K, Entry<T>)>; RECENT_MAX]);

impl<K, T> RecentEntries<K, T> {
    pub(super) const fn new() -> Self {
        RecentEntries([const { None }; RECENT_MAX])
    }
}

impl<K: Hash + Eq + Clone, T: Clone> Cache<K, T> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self::with(entries_max, LIFETIMES)
    }

    pub(super) fn with(entries_max: usize, lifetimes: Lifetimes) -> Self {
        Cache { entries: sync::Cache::new(entries_max), lifetimes, generation: AtomicU64::new(Generation::new().0) }
    }

    /// Checks thread-local entries first, because each access to the shared table writes shared
    /// memory.
    pub(super) fn get(&self, recent: &'static LocalKey<RefCell<RecentEntries<K, T>>>, key: &K) -> Option<Answer<T>> {
        recent.with_borrow_mut(|recent| {
            if let Some((_, entry)) = recent.0.iter().flatten().find(|(known, entry)| known == key && self.holds(entry)) {
                return Some(entry.answer.clone());
            }
            let entry = self.entries.get(key).filter(|entry| self.holds(entry))?;
            recent.0.rotate_right(1);
            recent.0[0] = Some((key.clone(), entry.clone()));
            Some(entry.answer)
        })
    }

    fn holds(&self, entry: &Entry<T>) -> bool {
        entry.generation == self.generation() && clock::mono_ms() < entry.until_ms
    }

    /// Read before the look-up.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Returns the valid answer: this one, or an older one.
    pub(super) fn put(&self, key: K, answer: Answer<T>, generation: Generation) -> Answer<T> {
        let now_ms = clock::mono_ms();
        let Lifetimes { yes_ms, no_ms, silence_ms, last_ms } = self.lifetimes;
        let last = || self.entries.get(&key).filter(|last| last.generation == generation && now_ms < last.last_until_ms);
        let entry = match answer {
            Ok(Some(_)) => Entry { answer, until_ms: now_ms + yes_ms, last_until_ms: now_ms + last_ms, generation },
            Ok(None) => Entry { answer, until_ms: now_ms + no_ms, last_until_ms: now_ms, generation },
            Err(NameServiceDown) => match last() {
                Some(last) => Entry { until_ms: now_ms + silence_ms, ..last },
                None => Entry { answer, until_ms: now_ms + silence_ms, last_until_ms: now_ms, generation },
            },
        };
        let believed = entry.answer.clone();
        self.entries.insert(key, entry);
        believed
    }

    pub(super) fn clear(&self) {
        self.generation.store(Generation::new().0, Ordering::SeqCst);
        self.entries.clear();
    }

    /// Calls `ask` only if the thread may block.
    pub(super) fn get_or(
        &self,
        recent: &'static LocalKey<RefCell<RecentEntries<K, T>>>,
        key: &K,
        blocking: Blocking,
        ask: impl FnOnce() -> Answer<T>,
    ) -> Result<Option<T>, Unanswered> {
        if let Some(known) = self.get(recent, key) {
            return Ok(known?);
        }
        if blocking == Blocking::Forbidden {
            return Err(would_wait());
        }
        let generation = self.generation();
        Ok(self.put(key.clone(), ask(), generation)?)
    }
}

impl From<NameServiceDown> for Unanswered {
    fn from(NameServiceDown: NameServiceDown) -> Self {
        Unanswered::Silent
    }
}

/// Listing a directory shows few owners.
const RECENT_MAX: usize = 4;
const LIFETIMES: Lifetimes = Lifetimes {
    // Like idmapd.
    yes_ms: 600_000,
    no_ms: 30_000,
    silence_ms: 1_000,
    // An outage overnight.
    last_ms: 24 * 3_600_000,
};
