//! Counts our changes of a file, for file systems with coarse time stamps. All exports share the
//! counter.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use vouch_vfs::{FileId, SystemId};

/// No change by us is known, and no caller has needed the number yet.
const UNDECIDED: u64 = u64::MAX;

/// The longest clock tick in use (FAT).
const TICK_MAX: Duration = Duration::from_secs(2);

pub(crate) struct ChangeCounter {
    file: Key,
    last: AtomicU64,
}

type Key = (SystemId, FileId);

type Known = HashMap<Key, Weak<ChangeCounter>>;

static COUNTERS: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

impl ChangeCounter {
    pub(crate) fn of(system: SystemId, own: FileId) -> Arc<Self> {
        let file = (system, own);
        let mut known = COUNTERS.lock();
        if let Some(changes) = known.get(&file).and_then(Weak::upgrade) {
            return changes;
        }
        let changes = Arc::new(ChangeCounter { file, last: AtomicU64::new(UNDECIDED) });
        known.insert(file, Arc::downgrade(&changes));
        changes
    }

    pub(crate) fn note(&self) {
        self.last.store(next_change(), Ordering::Relaxed);
    }

    pub(crate) fn number(&self, changed_ns: u64) -> u64 {
        match self.last.load(Ordering::Relaxed) {
            UNDECIDED => {
                // Within a clock tick, changes before a new descriptor are unknown.
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |now| now.as_nanos() as u64);
                let recent = changed_ns.saturating_add(TICK_MAX.as_nanos() as u64) > now;
                let changes = if recent { next_change() } else { 0 };
                match self.last.compare_exchange(
                    UNDECIDED,
                    changes,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => changes,
                    Err(noted) => noted,
                }
            }
            noted => noted,
        }
    }
}

impl Drop for ChangeCounter {
    fn drop(&mut self) {
        let mut known = COUNTERS.lock();
        // Another counter may have replaced it.
        if known.get(&self.file).is_some_and(|changes| changes.strong_count() == 0) {
            known.remove(&self.file);
        }
    }
}

/// Starts at the nanoseconds of the current second, so a restarted process continues above its
/// predecessor.
fn next_change() -> u64 {
    static COUNT: OnceLock<AtomicU64> = OnceLock::new();
    let count = COUNT.get_or_init(|| {
        AtomicU64::new(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| (now.as_nanos() % TICK_MAX.as_nanos()) as u64)
                + 1,
        )
    });
    count.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_shows_by_other_exports_within_a_tick() {
        let (system, other) = (SystemId::of_device(0xfff, 1), SystemId::of_device(0xfff, 2));
        let id = FileId::new(b"a file").expect("short");
        let (one, two, elsewhere) = (
            ChangeCounter::of(system, id),
            ChangeCounter::of(system, id),
            ChangeCounter::of(other, id),
        );
        let (before, apart) = (two.number(0), elsewhere.number(0));
        one.note();
        assert_ne!(two.number(0), before);
        assert_eq!(elsewhere.number(0), apart);
        drop((one, two));
        assert!(
            !COUNTERS.lock().contains_key(&(system, id)),
            "files without descriptors leave no state"
        );
    }
}
