//! One request of the kernel, and the open files of an observer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use fuser::OpenFlags;
use parking_lot::Mutex;
use vouch_tree::inode_number::InodeNumber as NodeId;

use crate::observer::{Caller, Observer, Operation};

pub(crate) struct ObserverState {
    pub(crate) observer: Arc<dyn Observer>,
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
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, open_files: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Whether the observer wants reads or closes, so that the kernel must not read directly.
    pub(crate) fn counts_reads(&self) -> bool {
        self.observer.wants(Operation::Read) || self.observer.wants(Operation::Close)
    }

    pub(crate) fn open_file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open_files.lock().get(&handle).cloned()
    }
}

#[derive(Clone)]
pub(crate) struct KernelRequest {
    /// `None` if the observer does not want this operation.
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

/// Set by Linux if a file is opened for execution; not available to open(2).
const FMODE_EXEC: i32 = 0x20;
