//! For tests: real rights, hard links, ACLs, holes, and injected faults. Deterministic: a logical
//! clock moves only by changes. Never returns a [`FileSpan`](crate::FileSpan).

mod acl;
mod crash;
mod data;
mod directory;
mod file_system;
mod names;
mod open;
mod rights;
mod set_attributes;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Blocking, Error, FileId, SystemId};
use state::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Attributes,
    Access,
    Lookup,
    Parent,
    ReadLink,
    ReadDirectory,
    Open,
    Create,
    Make,
    Link,
    Remove,
    Rename,
    SetAttributes,
    Space,
    Acl,
    Xattr,
    SyncMetadata,
    Read,
    Write,
    Commit,
    Region,
}

type HomeCallback = Arc<dyn Fn(&FileId) + Send + Sync>;

type Fault = Arc<dyn Fn(Call, &FileId) -> Option<Error> + Send + Sync>;

/// Clones share the files.
#[derive(Clone)]
pub struct MemoryFs {
    inner: Arc<Inner>,
    without: Option<FileId>,
}

struct Inner {
    number: u64,
    state: Mutex<State>,
    /// The state that a power cut may leave, after [`MemoryFs::keep_disk`].
    disk: Mutex<Option<State>>,
    fault: Mutex<Option<Fault>>,
    home_callback: Mutex<Option<HomeCallback>>,
    /// 0 without random blocking.
    random_blocking: AtomicU64,
    is_remote: AtomicBool,
    has_slow_listings: AtomicBool,
    removed: Mutex<Option<FileId>>,
    labels: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Default for MemoryFs {
    fn default() -> Self {
        MemoryFs::new()
    }
}

impl MemoryFs {
    /// The root belongs to user 0, with mode 0755.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        MemoryFs {
            inner: Arc::new(Inner {
                number,
                state: Mutex::new(State::new()),
                disk: Mutex::new(None),
                fault: Mutex::new(None),
                home_callback: Mutex::new(None),
                random_blocking: AtomicU64::new(0),
                is_remote: AtomicBool::new(false),
                has_slow_listings: AtomicBool::new(false),
                removed: Mutex::new(None),
                labels: Mutex::default(),
            }),
            without: None,
        }
    }

    pub fn without(&self, id: FileId) -> Self {
        MemoryFs { inner: self.inner.clone(), without: Some(id) }
    }

    /// Each call asks `fault` first and fails with its result. `fault` may call the file system,
    /// which asks it again.
    pub fn set_fault(
        &self,
        fault: impl Fn(Call, &FileId) -> Option<Error> + Send + Sync + 'static,
    ) {
        *self.inner.fault.lock() = Some(Arc::new(fault));
    }

    /// Called first by `home`. It may block like an unreachable mount, and must not call the file
    /// system.
    pub fn set_home_callback(&self, home_callback: impl Fn(&FileId) + Send + Sync + 'static) {
        *self.inner.home_callback.lock() = Some(Arc::new(home_callback));
    }

    pub fn clear_fault(&self) {
        *self.inner.fault.lock() = None;
    }

    /// Beyond it: [`Error::NoSpace`].
    pub fn set_capacity(&self, bytes: u64) {
        self.inner.state.lock().capacity = bytes;
    }

    pub fn set_read_only(&self, read_only: bool) {
        self.inner.state.lock().read_only = read_only;
    }

    /// The next read of each file or directory needs [`Blocking::Allowed`].
    pub fn evict_caches(&self) {
        let mut state = self.inner.state.lock();
        for inode in state.inodes.values_mut() {
            inode.cold = true;
        }
    }

    /// `commit`, `sync_metadata` and stable writes block.
    pub fn set_slow_sync(&self, slow: bool) {
        self.inner.state.lock().slow_sync = slow;
    }

    /// Every other non-blocking call blocks, by a sequence from `seed`; 0 ends it.
    pub fn set_random_blocking(&self, seed: u64) {
        self.inner.random_blocking.store(seed, Ordering::Relaxed);
    }

    /// From now on, calls to it may wait for other machines.
    pub fn set_remote(&self) {
        self.inner.is_remote.store(true, Ordering::Relaxed);
    }

    /// From now on, listings name a system of their own.
    pub fn set_slow_listings(&self) {
        self.inner.has_slow_listings.store(true, Ordering::Relaxed);
    }

    /// As if it had been in a snapshot that is gone. Open files stay readable until they are closed.
    pub fn set_removed(&self, id: FileId) {
        *self.inner.removed.lock() = Some(id);
    }

    pub fn open_count(&self) -> usize {
        self.inner.state.lock().inodes.values().map(|inode| inode.opens).sum()
    }

    pub fn file_count(&self) -> usize {
        self.inner.state.lock().inodes.len()
    }
}

impl Inner {
    fn id(&self, number: u64) -> FileId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        FileId::new(&bytes).expect("16 bytes are within the limit")
    }

    fn number_of(&self, id: &FileId) -> crate::Result<u64> {
        let bytes: [u8; 16] = id.as_bytes().try_into().map_err(|_| Error::BadId)?;
        let (file_system, number) = bytes.split_at(8);
        if file_system != self.number.to_be_bytes() {
            return Err(Error::BadId);
        }
        Ok(u64::from_be_bytes(number.try_into().map_err(|_| Error::BadId)?))
    }

    fn remote_system(&self) -> Option<SystemId> {
        self.is_remote.load(Ordering::Relaxed).then(|| SystemId::of_memory(self.number))
    }

    fn listing_system(&self) -> Option<SystemId> {
        let is_slow = self.has_slow_listings.load(Ordering::Relaxed);
        self.remote_system().or_else(|| is_slow.then(|| SystemId::of_memory(self.number)))
    }

    fn check_blocking(&self, blocking: Blocking) -> crate::Result<()> {
        if blocking == Blocking::Forbidden && self.is_remote.load(Ordering::Relaxed) {
            return Err(crate::Error::WouldBlock);
        }
        let before = self.random_blocking.load(Ordering::Relaxed);
        if before == 0 || blocking == Blocking::Allowed {
            return Ok(());
        }
        // Marsaglia's xorshift.
        let mut word = before;
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.random_blocking.store(word, Ordering::Relaxed);
        if word.count_ones().is_multiple_of(2) { Err(Error::WouldBlock) } else { Ok(()) }
    }

    fn injected_fault(&self, call: Call, id: &FileId) -> crate::Result<()> {
        let fault = self.fault.lock().clone();
        fault.and_then(|fault| fault(call, id)).map_or(Ok(()), Err)
    }
}
