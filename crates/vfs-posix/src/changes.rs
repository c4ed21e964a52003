//! How often a file was changed by us, for file systems whose clock is too coarse to show it: a
//! number that is added to the time of change.
//!
//! One a file, by however many exports it is reached: who watches it by one of them must see what
//! is changed by another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use vouch_vfs::{FileId, SystemId};

/// No change of ours is known, and nobody has asked yet what that means.
const UNDECIDED: u64 = u64::MAX;

/// For so long a coarse clock may stand still: FAT has the coarsest that is in use.
const TICK_MAX: Duration = Duration::from_secs(2);

/// The number of the last change of a file.
pub(crate) struct Changes {
    file: Key,
    last: AtomicU64,
}

/// A file, and the bytes that tell it from all others there.
type Key = (SystemId, FileId);

type Known = HashMap<Key, Weak<Changes>>;

/// Those of all files that anybody has a descriptor of. A lock for a short look, at descriptors
/// that come and go.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

impl Changes {
    /// Those of the file.
    pub(crate) fn of(system: SystemId, own: FileId) -> Arc<Self> {
        let file = (system, own);
        let mut known = KNOWN.lock();
        if let Some(changes) = known.get(&file).and_then(Weak::upgrade) {
            return changes;
        }
        let changes = Arc::new(Changes { file, last: AtomicU64::new(UNDECIDED) });
        known.insert(file, Arc::downgrade(&changes));
        changes
    }

    /// We have changed the file.
    pub(crate) fn note(&self) {
        self.last.store(next_change(), Ordering::Relaxed);
    }

    /// What is to be added to the time of change, which is given in nanoseconds.
    pub(crate) fn number(&self, changed_ns: u64) -> u64 {
        match self.last.load(Ordering::Relaxed) {
            UNDECIDED => {
                // Descriptors come and go. Within a tick of the clock nobody knows what was there before, or what
                // was told of it.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
                let recent = changed_ns.saturating_add(TICK_MAX.as_nanos() as u64) > now;
                let changes = if recent { next_change() } else { 0 };
                match self.last.compare_exchange(UNDECIDED, changes, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => changes,
                    Err(noted) => noted,
                }
            }
            noted => noted,
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut known = KNOWN.lock();
        // Another may have come in its place meanwhile.
        if known.get(&self.file).is_some_and(|changes| changes.strong_count() == 0) {
            known.remove(&self.file);
        }
    }
}

/// Numbers of changes, for all files of the process; they grow. The first is the part of the second
/// in which the process began to count, in nanoseconds, so that one that is started again within a
/// tick of the clock goes on above: changes take longer than a nanosecond each.
fn next_change() -> u64 {
    static COUNT: OnceLock<AtomicU64> = OnceLock::new();
    let count = COUNT.get_or_init(|| {
        AtomicU64::new(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| (now.as_nanos() % TICK_MAX.as_nanos()) as u64) + 1)
    });
    count.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_by_one_export_shows_by_another_within_a_tick_and_on_no_other_file() {
        let (system, other) = (SystemId::of_device(0xfff, 1), SystemId::of_device(0xfff, 2));
        let id = FileId::new(b"a file").expect("short");
        let (one, two, elsewhere) = (Changes::of(system, id), Changes::of(system, id), Changes::of(other, id));
        let (before, apart) = (two.number(0), elsewhere.number(0));
        one.note();
        assert_ne!(two.number(0), before);
        assert_eq!(elsewhere.number(0), apart);
        drop((one, two));
        assert!(!KNOWN.lock().contains_key(&(system, id)), "nothing is remembered of files that nobody has");
    }
}
