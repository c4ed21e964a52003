//! One request of the kernel, and the open files that an observer hears of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use fuser::OpenFlags;
use parking_lot::Mutex;
use vouch_tree::inode_number::InodeNumber as NodeId;

use crate::observer::{Caller, Observer, Operation};

/// An observer, and the open files that it will be told the end of.
pub(crate) struct ObserverState {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) open_files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    pub(crate) next: AtomicU64,
}

/// A file that somebody has open.
pub(crate) struct OpenFile {
    pub(crate) caller: Caller,
    pub(crate) id: NodeId,
    pub(crate) since: Instant,
    pub(crate) read: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) passes_through: bool,
}

impl ObserverState {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, open_files: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Whether it wants to know what is read of a file: then the kernel must not read it by itself.
    pub(crate) fn counts_reads(&self) -> bool {
        self.observer.wants(Operation::Read) || self.observer.wants(Operation::Close)
    }

    pub(crate) fn open_file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open_files.lock().get(&handle).cloned()
    }
}

/// A request of the kernel: by whom, for what.
#[derive(Clone)]
pub(crate) struct KernelRequest {
    /// None where nobody observes such.
    pub(crate) caller: Option<Caller>,
    pub(crate) operation: Operation,
    /// FUSE name of the operation, for the log.
    pub(crate) opcode: &'static str,
    pub(crate) id: NodeId,
    /// Of a lookup.
    pub(crate) name: Option<Box<[u8]>>,
    /// Of a lookup, what it has found.
    pub(crate) found: Option<u64>,
    pub(crate) executes: bool,
    pub(crate) offset: Option<u64>,
}

impl KernelRequest {
    pub(crate) fn named(mut self, name: &[u8]) -> Self {
        self.name = self.caller.is_some().then(|| name.into());
        self
    }

    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(crate) fn found(mut self, number: u64) -> Self {
        self.found = Some(number);
        self
    }

    /// As the flags of an open say.
    pub(crate) fn with(mut self, flags: OpenFlags) -> Self {
        self.executes = flags.0 & FMODE_EXEC != 0;
        self
    }
}

/// Linux sets this flag, which no caller of open(2) can, where a file is opened to be executed.
const FMODE_EXEC: i32 = 0x20;
