use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::OpenFlags;
use parking_lot::Mutex;
use vouch_tree::inode_number::InodeNumber as NodeId;

use crate::journal::Journal;
use crate::journal::record::{HandleRecord, Record};
use crate::observer::{Caller, Observer, Operation};

pub(crate) struct ObserverState {
    pub(crate) observer: Arc<dyn Observer>,
    journal: Option<Arc<Journal>>,
    pub(crate) open_files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    pub(crate) next: AtomicU64,
}

pub(crate) struct OpenFile {
    pub(crate) caller: Caller,
    pub(crate) id: NodeId,
    pub(crate) since: Instant,
    pub(crate) read: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) passes_through: bool,
}

impl ObserverState {
    pub(crate) fn new(observer: Arc<dyn Observer>, journal: Option<Arc<Journal>>) -> Self {
        Self { observer, journal, open_files: Mutex::default(), next: AtomicU64::new(1) }
    }

    pub(crate) fn insert(&self, handle: u64, file: OpenFile) {
        if let Some(journal) = &self.journal {
            journal.append([file.record(handle)]);
        }
        self.open_files.lock().insert(handle, Arc::new(file));
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        if let Some(journal) = &self.journal {
            journal.append_later([Record::HandleClosed(handle)]);
        }
        self.open_files.lock().remove(&handle)
    }

    pub(crate) fn restore(&self, record: &HandleRecord) {
        self.next.fetch_max(record.handle + 1, Ordering::Relaxed);
        self.open_files.lock().insert(record.handle, Arc::new(OpenFile::restore(record)));
    }

    pub(crate) fn record_all(&self, journal: &Journal) {
        let files = self.open_files.lock();
        journal.append(files.iter().map(|(handle, file)| file.record(*handle)));
    }

    /// True if the observer wants reads or closes: the kernel must not read directly.
    pub(crate) fn counts_reads(&self) -> bool {
        self.observer.wants(Operation::Read) || self.observer.wants(Operation::Close)
    }

    pub(crate) fn open_file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open_files.lock().get(&handle).cloned()
    }
}

impl OpenFile {
    fn record(&self, handle: u64) -> Record {
        let Caller { uid, gid, pid, login } = self.caller;
        let (read, failed) =
            (self.read.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed));
        let opened = SystemTime::now()
            .checked_sub(self.since.elapsed())
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let opened_ms = opened.map_or(0, |at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
        Record::Handle(HandleRecord {
            handle,
            id: self.id,
            uid,
            gid,
            pid,
            login,
            opened_ms,
            read,
            failed,
            passes_through: self.passes_through,
        })
    }

    fn restore(record: &HandleRecord) -> Self {
        let HandleRecord {
            id, uid, gid, pid, login, opened_ms, read, failed, passes_through, ..
        } = *record;
        let opened = UNIX_EPOCH.checked_add(Duration::from_millis(opened_ms));
        let open =
            opened.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default();
        let since = Instant::now().checked_sub(open).unwrap_or_else(Instant::now);
        let (read, failed) = (AtomicU64::new(read), AtomicU64::new(failed));
        Self { caller: Caller { uid, gid, pid, login }, id, since, read, failed, passes_through }
    }
}

#[derive(Clone)]
pub(crate) struct KernelRequest {
    pub(crate) caller: Option<Caller>,
    pub(crate) operation: Operation,
    pub(crate) opcode: &'static str,
    pub(crate) id: NodeId,
    pub(crate) name: Option<Box<[u8]>>,
    pub(crate) found: Option<u64>,
    pub(crate) executes: bool,
    pub(crate) offset: Option<u64>,
}

impl KernelRequest {
    pub(crate) fn with_name(mut self, name: &[u8]) -> Self {
        self.name = self.caller.is_some().then(|| name.into());
        self
    }

    pub(crate) fn with_offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(crate) fn with_number(mut self, number: u64) -> Self {
        self.found = Some(number);
        self
    }

    pub(crate) fn with_flags(mut self, flags: OpenFlags) -> Self {
        self.executes = flags.0 & FMODE_EXEC != 0;
        self
    }
}

/// Linux sets it when a file is opened for execution; open(2) cannot.
const FMODE_EXEC: i32 = 0x20;
