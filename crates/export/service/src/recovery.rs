//! Recovery store: state that clients may reclaim after a restart (RFC 8881, section 8.4.2.1). The
//! engine defines keys and values.
//!
//! One thread commits records in groups, and a reply leaves after the commit of its records. If the
//! disk fails, replies wait for a retry: a forgotten open would let another client overwrite data
//! after a crash.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use vouch_nfs4_server::Recovered;
use vouch_vfs_posix::open_database_file;

use crate::lease::{GuardedFile, ServingRight};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Of two changes to one key, the greater order wins.
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        order: u64,
    },
    Remove {
        key: Vec<u8>,
        order: u64,
    },
    RemoveOld,
}

impl Change {
    /// Replies also wait for [`Change::RemoveOld`]: otherwise a crash could restore state that
    /// clients lost at the end of grace.
    pub(super) fn delays_replies(&self) -> bool {
        !matches!(self, Change::Remove { .. })
    }
}

pub(super) type DurableCallback = Box<dyn FnOnce() + Send>;

pub(super) struct RecoveryStore {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    database: Database,
    boot: u64,
    queue: Mutex<Queue>,
    news: Condvar,
    /// Changes that delay replies and are not durable. Each call reads this, so without a lock.
    behind: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    changes: Vec<Change>,
    /// Order of the last change of existing records. A late `Put` may restore a deleted record,
    /// which at worst prolongs the grace period.
    orders: HashMap<Vec<u8>, u64>,
    after: Vec<DurableCallback>,
    stopped: bool,
    failures: u64,
}

impl Queue {
    fn is_newest(&mut self, change: &Change) -> bool {
        match change {
            Change::Put { key, order, .. } => {
                let last = self.orders.entry(key.clone()).or_default();
                let newest = *last <= *order;
                *last = (*last).max(*order);
                newest
            }
            Change::Remove { key, order } => {
                let newest = self.orders.get(key).is_none_or(|last| last <= order);
                if newest {
                    self.orders.remove(key);
                }
                newest
            }
            Change::RemoveOld => true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("recovery records: {0}")]
pub struct RecoveryError(#[from] redb::Error);

impl RecoveryStore {
    /// The caller holds the lock of the state directory, or the lease that `right` belongs to.
    pub(super) fn open(
        path: &Path,
        right: Option<&Arc<ServingRight>>,
        clock_nanos: u64,
    ) -> Result<(Self, u64, Recovered), RecoveryError> {
        let database = match right {
            None => {
                let file = open_database_file(path).map_err(redb::Error::Io)?;
                Database::builder().create_file(file).map_err(redb::Error::from)?
            }
            Some(right) => {
                let file = GuardedFile::open(path, right.clone()).map_err(redb::Error::Io)?;
                Database::builder().create_with_backend(file).map_err(redb::Error::from)?
            }
        };
        let (boot, records) = begin(&database, clock_nanos)?;
        let shared = Arc::new(Shared {
            database,
            boot,
            queue: Mutex::default(),
            news: Condvar::new(),
            behind: AtomicUsize::new(0),
        });
        Ok((RecoveryStore { shared, thread: Mutex::new(None) }, boot, Recovered { records }))
    }

    pub(super) fn start(&self) -> std::io::Result<()> {
        let shared = self.shared.clone();
        *self.thread.lock() =
            Some(thread::Builder::new().name("recovery".into()).spawn(move || shared.run())?);
        Ok(())
    }

    /// Calls `after` when the changes are durable.
    pub(super) fn change(&self, mut changes: Vec<Change>, after: Option<DurableCallback>) {
        let mut queue = self.shared.queue.lock();
        changes.retain(|change| queue.is_newest(change));
        self.shared.behind.fetch_add(waited_for(&changes), Ordering::SeqCst);
        queue.changes.extend(changes);
        queue.after.extend(after);
        drop(queue);
        self.shared.news.notify_one();
    }

    pub(super) fn has_pending(&self) -> bool {
        self.shared.behind.load(Ordering::SeqCst) > 0
    }

    pub(super) fn failures(&self) -> u64 {
        self.shared.queue.lock().failures
    }

    pub(super) fn stop(&self) {
        self.shared.queue.lock().stopped = true;
        self.shared.news.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the recovery store panicked; this is a bug in vouch");
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if queue.changes.is_empty() && queue.after.is_empty() {
                if queue.stopped {
                    return;
                }
                self.news.wait(&mut queue);
                continue;
            }
            let (changes, after) =
                (std::mem::take(&mut queue.changes), std::mem::take(&mut queue.after));
            drop(queue);
            let written = self.write(&changes);
            queue = self.queue.lock();
            match written {
                Ok(()) => {
                    self.behind.fetch_sub(waited_for(&changes), Ordering::SeqCst);
                    drop(queue);
                    after.into_iter().for_each(|then| then());
                    queue = self.queue.lock();
                }
                Err(error) => {
                    queue.failures += 1;
                    tracing::error!(%error, "recovery records cannot be written; replies wait until a retry succeeds");
                    if queue.stopped {
                        return;
                    }
                    let newer = std::mem::replace(&mut queue.changes, changes);
                    queue.changes.extend(newer);
                    queue.after.splice(..0, after);
                    self.news.wait_for(&mut queue, RETRY);
                }
            }
        }
    }

    fn write(&self, changes: &[Change]) -> Result<(), redb::Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            for change in changes {
                match change {
                    Change::Put { key, value, .. } => {
                        table.insert(key.as_slice(), (self.boot, value.as_slice()))?;
                    }
                    Change::Remove { key, .. } => {
                        table.remove(key.as_slice())?;
                    }
                    Change::RemoveOld => table.retain(|_, (boot, _)| boot == self.boot)?,
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

fn waited_for(changes: &[Change]) -> usize {
    changes.iter().filter(|change| change.delays_replies()).count()
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Increments the boot number, durably. It starts at the wall clock, so that a lost store repeats
/// no number.
fn begin(database: &Database, clock_nanos: u64) -> Result<(u64, Records), redb::Error> {
    let transaction = database.begin_write()?;
    let boot = {
        let mut meta = transaction.open_table(META)?;
        let last = meta.get("boot")?.map_or(0, |guard| guard.value());
        let boot = clock_nanos.max(last.saturating_add(1));
        meta.insert("boot", boot)?;
        transaction.open_table(RECORDS)?;
        boot
    };
    transaction.commit()?;
    let read = database.begin_read()?;
    let table = read.open_table(RECORDS)?;
    let mut records = Vec::new();
    for entry in table.iter()? {
        let (key, value) = entry?;
        records.push((key.value().to_vec(), value.value().1.to_vec()));
    }
    Ok((boot, records))
}

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const RECORDS: TableDefinition<'_, &[u8], (u64, &[u8])> = TableDefinition::new("records");

const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::mpsc;

    fn put(key: &[u8], value: &[u8]) -> Change {
        Change::Put { key: key.to_vec(), value: value.to_vec(), order: 5 }
    }

    fn remove(key: &[u8], order: u64) -> Change {
        Change::Remove { key: key.to_vec(), order }
    }

    fn durable(store: &RecoveryStore, changes: Vec<Change>) {
        let (done, wait) = mpsc::channel();
        store.change(changes, Some(Box::new(move || done.send(()).unwrap())));
        wait.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn end_of_grace_deletes_records_of_earlier_starts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r");
        let open = || {
            let (store, boot, recovered) = RecoveryStore::open(&path, None, 5).unwrap();
            store.start().unwrap();
            (store, boot, recovered.records)
        };
        let (store, first, records) = open();
        assert!(records.is_empty());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        durable(&store, vec![put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3"), remove(b"c", 5)]);
        store.stop();
        drop(store);
        let (store, second, records) = open();
        assert!(second > first);
        assert_eq!(records, [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
        durable(&store, vec![put(b"b", b"4"), Change::RemoveOld]);
        store.stop();
        drop(store);
        assert_eq!(open().2, [(b"b".to_vec(), b"4".to_vec())]);
    }

    #[test]
    fn ignores_changes_that_arrive_out_of_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r");
        let (store, _, _) = RecoveryStore::open(&path, None, 5).unwrap();
        store.start().unwrap();
        durable(&store, vec![put(b"a", b"opened"), put(b"b", b"revoked"), put(b"c", b"old")]);
        durable(
            &store,
            vec![
                remove(b"a", 4),
                Change::Put { key: b"b".to_vec(), value: b"opened".to_vec(), order: 4 },
                remove(b"c", 6),
            ],
        );
        store.stop();
        drop(store);
        let kept = RecoveryStore::open(&path, None, 5).unwrap().2.records;
        assert_eq!(
            kept,
            [(b"a".to_vec(), b"opened".to_vec()), (b"b".to_vec(), b"revoked".to_vec())]
        );
    }

    #[test]
    fn continuation_waits_for_records_of_other_calls() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _, _) = RecoveryStore::open(&directory.path().join("r"), None, 5).unwrap();
        assert!(!store.has_pending());
        let (done, wait) = mpsc::channel();
        let (first, second) = (done.clone(), done);
        store.change(vec![put(b"a", b"1")], Some(Box::new(move || first.send(1).unwrap())));
        assert!(store.has_pending());
        store.change(Vec::new(), Some(Box::new(move || second.send(2).unwrap())));
        store.start().unwrap();
        assert_eq!([1, 2].map(|_| wait.recv_timeout(Duration::from_secs(30)).unwrap()), [1, 2]);
        assert!(!store.has_pending());
        store.stop();
    }

    // RFC 8881, section 8.4.3.
    #[test]
    fn end_of_grace_delays_replies() {
        let directory = tempfile::tempdir().unwrap();
        let (store, _, _) = RecoveryStore::open(&directory.path().join("r"), None, 5).unwrap();
        store.change(vec![remove(b"a", 1)], None);
        assert!(!store.has_pending(), "a deleted record delays no reply");
        store.change(vec![Change::RemoveOld], None);
        assert!(store.has_pending());
        store.start().unwrap();
        durable(&store, Vec::new());
        assert!(!store.has_pending());
        store.stop();
    }
}
