//! Negative answers expire sooner, so that a new account works soon. During an outage old answers
//! stay valid within limits: one call waits for the failing look-up, later ones get the old answer
//! while it is repeated in the background. A reload expires all answers and extends none.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use parking_lot::Mutex;
use quick_cache::{Weighter, sync};
use vouch_nfs4_server::Unanswered;
use vouch_vfs::{Blocking, Caller};

use super::lookup::{Lookups, PendingLookup};
use super::service::NameServiceDown;
use crate::clock;
use crate::limits::PENDING_LOOKUPS_MAX;

pub(super) type Answer<T> = Result<Option<T>, NameServiceDown>;

pub(super) struct Cache<K, T> {
    entries: sync::Cache<K, Entry<T>, EntryLen>,
    pending: Mutex<HashMap<K, Arc<PendingLookup<T>>>>,
    lookups: Arc<Lookups>,
    lifetimes: Lifetimes,
    generation: AtomicU64,
    still_applies: StillApplies<K, T>,
}

/// True: an answer from before a reload may still be used during an outage.
pub(super) type StillApplies<K, T> = Box<dyn Fn(&K, &T) -> bool + Send + Sync>;

#[derive(Clone, Copy)]
pub(super) struct Lifetimes {
    pub(super) yes_ms: u64,
    pub(super) no_ms: u64,
    /// Pause after a failure, so that the name service is not flooded.
    pub(super) silence_ms: u64,
    /// Longest life of an answer while the name service does not answer.
    pub(super) last_ms: u64,
}

#[derive(Clone)]
struct Entry<T> {
    answer: Answer<T>,
    until_ms: u64,
    last_until_ms: u64,
    is_last: bool,
    generation: Generation,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl Generation {
    fn new() -> Generation {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        Generation(GENERATIONS.fetch_add(1, Ordering::SeqCst))
    }
}

/// Memory of a value beside its entry, in bytes.
pub(super) trait HeapLen {
    fn heap_len(&self) -> usize;
}

impl HeapLen for Arc<Caller> {
    fn heap_len(&self) -> usize {
        size_of_val(&*self.groups)
    }
}

impl HeapLen for Arc<str> {
    fn heap_len(&self) -> usize {
        self.len()
    }
}

impl HeapLen for u32 {
    fn heap_len(&self) -> usize {
        0
    }
}

#[derive(Clone)]
struct EntryLen;

impl<K, T: HeapLen> Weighter<K, Entry<T>> for EntryLen {
    fn weight(&self, _: &K, entry: &Entry<T>) -> u64 {
        let heap_len =
            entry.answer.as_ref().ok().and_then(Option::as_ref).map_or(0, HeapLen::heap_len);
        (ENTRY_LEN + heap_len) as u64
    }
}

pub(super) struct RecentEntries<K, T>([Option<(K, Entry<T>)>; RECENT_MAX]);

impl<K, T> RecentEntries<K, T> {
    pub(super) const fn new() -> Self {
        RecentEntries([const { None }; RECENT_MAX])
    }
}

type Recent<K, T> = &'static LocalKey<RefCell<RecentEntries<K, T>>>;

impl<K: Hash + Eq + Clone, T: Clone + HeapLen> Cache<K, T> {
    pub(super) fn new(
        entries: usize,
        lookups: Arc<Lookups>,
        lifetimes: Lifetimes,
        still_applies: StillApplies<K, T>,
    ) -> Self {
        Cache {
            entries: sync::Cache::with_weighter(
                entries,
                (entries * ENTRY_LEN_USUAL) as u64,
                EntryLen,
            ),
            pending: Mutex::default(),
            lookups,
            lifetimes,
            generation: AtomicU64::new(Generation::new().0),
            still_applies,
        }
    }

    /// Thread-local entries first: each access to the shared table writes shared memory.
    pub(super) fn get(&self, recent: Recent<K, T>, key: &K) -> Option<Answer<T>> {
        recent.with_borrow_mut(|recent| {
            if let Some((_, entry)) =
                recent.0.iter().flatten().find(|(known, entry)| known == key && self.holds(entry))
            {
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

    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    pub(super) fn put(&self, key: K, answer: Answer<T>, generation: Generation) -> Answer<T> {
        let now_ms = clock::mono_ms();
        let Lifetimes { yes_ms, no_ms, silence_ms, last_ms } = self.lifetimes;
        let last = || {
            self.entries
                .get(&key)
                .filter(|last| now_ms < last.last_until_ms && self.may_outlive_reload(&key, last))
        };
        let new = |answer, life_ms, last_ms| Entry {
            answer,
            until_ms: now_ms + life_ms,
            last_until_ms: now_ms + last_ms,
            is_last: false,
            generation,
        };
        let entry = match answer {
            Ok(Some(_)) => new(answer, yes_ms, last_ms),
            Ok(None) => new(answer, no_ms, 0),
            Err(NameServiceDown) => match last() {
                Some(last) => Entry {
                    until_ms: (now_ms + silence_ms).min(last.last_until_ms),
                    is_last: true,
                    generation,
                    ..last
                },
                None => new(answer, silence_ms, 0),
            },
        };
        let believed = entry.answer.clone();
        if generation == self.generation() {
            self.entries.insert(key, entry);
        }
        believed
    }

    /// Each answer is asked for again before its next use.
    pub(super) fn expire(&self) {
        self.generation.store(Generation::new().0, Ordering::SeqCst);
    }

    fn may_outlive_reload(&self, key: &K, entry: &Entry<T>) -> bool {
        let applies = || {
            entry.answer.as_ref().is_ok_and(|known| {
                known.as_ref().is_some_and(|known| (self.still_applies)(key, known))
            })
        };
        entry.generation == self.generation() || applies()
    }

    fn last_known(&self, key: &K) -> Option<Answer<T>> {
        let entry = self.entries.get(key)?;
        let is_valid = entry.is_last
            && entry.generation == self.generation()
            && clock::mono_ms() < entry.last_until_ms;
        is_valid.then_some(entry.answer)
    }

    #[cfg(test)]
    pub(super) fn len_in_bytes(&self) -> u64 {
        self.entries.weight()
    }

    fn has_failed(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.is_last || entry.answer.is_err())
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, T: Clone + HeapLen + Send + Sync + 'static>
    Cache<K, T>
{
    /// Waits only if the thread may block. `make` runs on another thread.
    pub(super) fn get_or<A>(
        self: &Arc<Self>,
        recent: Recent<K, T>,
        key: &K,
        blocking: Blocking,
        make: impl FnOnce() -> A,
    ) -> Result<Option<T>, Unanswered>
    where
        A: FnOnce() -> Answer<T> + Send + 'static,
    {
        if let Some(known) = self.get(recent, key) {
            return Ok(known?);
        }
        if let Some(last) = self.last_known(key) {
            if self.lookups.may_refresh() {
                self.start(key, true, make());
            }
            return Ok(last?);
        }
        if blocking == Blocking::Forbidden {
            return Err(Unanswered::WouldWait);
        }
        let Some(lookup) = self.start(key, false, make()) else { return Err(Unanswered::Silent) };
        match lookup.wait(self.lookups.wait(lookup.began_ms)) {
            Some(answer) => Ok(answer?),
            None => {
                self.lookups.count_late_answer();
                Ok(self.put(key.clone(), Err(NameServiceDown), lookup.generation)?)
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        key: &K,
        is_refresh: bool,
        ask: impl FnOnce() -> Answer<T> + Send + 'static,
    ) -> Option<Arc<PendingLookup<T>>> {
        let generation = self.generation();
        let mut pending = self.pending.lock();
        if let Some(known) = pending.get(key).filter(|known| known.generation == generation) {
            return Some(known.clone());
        }
        if pending.len() >= PENDING_LOOKUPS_MAX {
            return None;
        }
        let lookup = Arc::new(PendingLookup::new(generation));
        pending.insert(key.clone(), lookup.clone());
        drop(pending);
        if is_refresh {
            self.lookups.refresh_began();
        }
        let completion = Completion {
            cache: self.clone(),
            key: key.clone(),
            lookup: lookup.clone(),
            is_refresh,
            answer: Err(NameServiceDown),
        };
        self.lookups.run(move || completion.finish(ask())).then_some(lookup)
    }
}

/// Stores the answer when dropped: a look-up that panics or never runs has failed.
struct Completion<K: Hash + Eq + Clone, T: Clone + HeapLen> {
    cache: Arc<Cache<K, T>>,
    key: K,
    lookup: Arc<PendingLookup<T>>,
    is_refresh: bool,
    answer: Answer<T>,
}

impl<K: Hash + Eq + Clone, T: Clone + HeapLen> Completion<K, T> {
    fn finish(mut self, answer: Answer<T>) {
        self.answer = answer;
    }
}

impl<K: Hash + Eq + Clone, T: Clone + HeapLen> Drop for Completion<K, T> {
    fn drop(&mut self) {
        let Completion { cache, key, lookup, .. } = &*self;
        if self.is_refresh {
            cache.lookups.refresh_ended();
        }
        match self.answer {
            Err(NameServiceDown) => cache.lookups.failed(),
            Ok(_) => cache.lookups.succeeded(cache.has_failed(key)),
        }
        let believed = cache.put(key.clone(), self.answer.clone(), lookup.generation);
        let mut pending = cache.pending.lock();
        if pending.get(key).is_some_and(|known| Arc::ptr_eq(known, lookup)) {
            pending.remove(key);
        }
        drop(pending);
        lookup.complete(believed);
    }
}

impl From<NameServiceDown> for Unanswered {
    fn from(NameServiceDown: NameServiceDown) -> Self {
        Unanswered::Silent
    }
}

const RECENT_MAX: usize = 4;
const ENTRY_LEN: usize = 512;
const ENTRY_LEN_USUAL: usize = 1024;
