//! A bounded cache whose entries expire: soon where the answer was no, so that a new account is not
//! refused for long, and at once where nobody answered. What was known last is believed for as long
//! as nobody answers, within bounds.

use std::cell::RefCell;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use quick_cache::sync;
use vouch_nfs4_server::Unanswered;
use vouch_vfs::Patience;

use super::service::NameServiceDown;
use super::would_wait::would_wait;
use crate::clock;

/// What the name service said: something, or that there is no such thing; if it said anything.
pub(super) type Answer<T> = Result<Option<T>, NameServiceDown>;

pub(super) struct Cache<K, T> {
    entries: sync::Cache<K, Entry<T>>,
    lifetimes: Lifetimes,
    /// Another one each time that all is forgotten, and no other cache's.
    generation: AtomicU64,
}

/// For how long answers are believed.
#[derive(Clone, Copy)]
pub(super) struct Lifetimes {
    pub(super) yes_ms: u64,
    pub(super) no_ms: u64,
    /// Before it is asked again, where nobody answered: no longer than spares it a flood of
    /// questions.
    pub(super) silence_ms: u64,
    /// What was known last, while nobody answers.
    pub(super) last_ms: u64,
}

#[derive(Clone)]
struct Entry<T> {
    answer: Answer<T>,
    /// When it is to be asked again.
    until_ms: u64,
    /// Until when it is believed if nobody answers.
    last_until_ms: u64,
    generation: Generation,
}

/// What an answer was asked in: what was asked for before all was forgotten is not remembered after
/// it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl Generation {
    fn new() -> Generation {
        static GENERATIONS: AtomicU64 = AtomicU64::new(0);
        Generation(GENERATIONS.fetch_add(1, Ordering::SeqCst))
    }
}

/// What a thread found last in a cache of these.
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

    /// What was answered, or was not, and has not expired; first by what this thread found last, as
    /// each look at a table that threads share writes to memory that they share.
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

    /// To be asked before anything that an answer depends on is looked at.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Remembers an answer that was asked for in this generation, and returns what is to be believed now:
    /// that, or what was known last.
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

    /// What is known, or what `ask` says if that may sleep.
    pub(super) fn get_or(
        &self,
        recent: &'static LocalKey<RefCell<RecentEntries<K, T>>>,
        key: &K,
        patience: Patience,
        ask: impl FnOnce() -> Answer<T>,
    ) -> Result<Option<T>, Unanswered> {
        if let Some(known) = self.get(recent, key) {
            return Ok(known?);
        }
        if patience == Patience::None {
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

/// Owners whose files one looks at come in turn, but few.
const RECENT_MAX: usize = 4;
const LIFETIMES: Lifetimes = Lifetimes {
    // As long as idmapd believes its answers.
    yes_ms: 600_000,
    no_ms: 30_000,
    silence_ms: 1_000,
    // Over night, as what is known of hosts.
    last_ms: 24 * 3_600_000,
};
