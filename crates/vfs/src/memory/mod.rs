//! A complete file system in memory, for tests: real rights, hard links, ACLs, holes, and faults on
//! demand.
//!
//! Deterministic: its clock is logical and moves only by changes and [`MemoryFs::set_time`];
//! numbers are given out in order. Never returns a [`FileSpan`](crate::FileSpan), for there is no
//! file that could be sent. One lock for all: it is not made to be fast.

mod acl;
mod data;
mod directory;
mod file_system;
mod names;
mod open;
mod rights;
mod setting;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Error, FileId, Patience, Time};
use state::State;

/// What is being asked, for a fault to choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `attributes` of a file system or an open file.
    Attributes,
    /// `access`.
    Access,
    /// `lookup`.
    Lookup,
    /// `parent`.
    Parent,
    /// `read_link`.
    ReadLink,
    /// `read_directory`.
    ReadDirectory,
    /// `open`.
    Open,
    /// `create`.
    Create,
    /// `make`.
    Make,
    /// `link`.
    Link,
    /// `remove`.
    Remove,
    /// `rename`.
    Rename,
    /// `set_attributes`.
    SetAttributes,
    /// `space`.
    Space,
    /// `acl`, `set_acl`.
    Acl,
    /// `xattr` and its kin.
    Xattr,
    /// `sync_metadata`.
    SyncMetadata,
    /// `read`.
    Read,
    /// `write`.
    Write,
    /// `commit`.
    Commit,
    /// `truncate`, `seek`, `allocate`, `deallocate`, `copy_from`, `clone_range`.
    Region,
}

type Seeking = Arc<dyn Fn(&FileId) + Send + Sync>;

type Fault = Arc<dyn Fn(Call, &FileId) -> Option<Error> + Send + Sync>;

/// The file system in memory. Clones are the same file system.
#[derive(Clone)]
pub struct MemoryFs {
    inner: Arc<Inner>,
    /// A file that is not shown.
    without: Option<FileId>,
}

struct Inner {
    /// Sets its identities apart from those of any other in this process.
    number: u64,
    state: Mutex<State>,
    fault: Mutex<Option<Fault>>,
    /// Asked where a file lies.
    seeking: Mutex<Option<Seeking>>,
    /// State of the sequence by which calls block at random; 0 if none does.
    reluctance: AtomicU64,
}

impl Default for MemoryFs {
    fn default() -> Self {
        MemoryFs::new()
    }
}

impl MemoryFs {
    /// An empty file system whose root belongs to user 0 and lets everybody in (mode 0755).
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        MemoryFs {
            inner: Arc::new(Inner {
                number,
                state: Mutex::new(State::new()),
                fault: Mutex::new(None),
                seeking: Mutex::new(None),
                reluctance: AtomicU64::new(0),
            }),
            without: None,
        }
    }

    /// The same file system, as an export has it that does not show this file: it lies nowhere.
    pub fn without(&self, id: FileId) -> Self {
        MemoryFs { inner: self.inner.clone(), without: Some(id) }
    }

    /// From now on each call asks `fault` first, and fails with what it returns. It must not call
    /// the file system.
    pub fn set_fault(&self, fault: impl Fn(Call, &FileId) -> Option<Error> + Send + Sync + 'static) {
        *self.inner.fault.lock() = Some(Arc::new(fault));
    }

    /// From now on `home` calls this first, which may take its time as a mount does whose server is
    /// away. It must not call the file system.
    pub fn set_seeking(&self, seeking: impl Fn(&FileId) + Send + Sync + 'static) {
        *self.inner.seeking.lock() = Some(Arc::new(seeking));
    }

    /// No more faults.
    pub fn clear_fault(&self) {
        *self.inner.fault.lock() = None;
    }

    /// Room for so many bytes of data; past it: [`Error::NoSpace`].
    pub fn set_capacity(&self, bytes: u64) {
        self.inner.state.lock().capacity = bytes;
    }

    /// Refuses all changes, or takes them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.inner.state.lock().read_only = read_only;
    }

    /// Makes all data and directories cold: without patience the next read of each would block,
    /// until it was read with patience.
    pub fn chill(&self) {
        let mut state = self.inner.state.lock();
        for inode in state.inodes.values_mut() {
            inode.cold = true;
        }
    }

    /// Whether syncing has to be waited for: `commit`, `sync_metadata` and stable writes without
    /// patience would block.
    pub fn set_slow_sync(&self, slow: bool) {
        self.inner.state.lock().slow_sync = slow;
    }

    /// Whether a directory's change is reported as atomic (it is; servers must cope with file
    /// systems where it is not).
    pub fn set_atomic(&self, atomic: bool) {
        self.inner.state.lock().atomic = atomic;
    }

    /// From now on every other call without patience would block, by a sequence that `seed` begins;
    /// 0 ends it.
    pub fn set_reluctance(&self, seed: u64) {
        self.inner.reluctance.store(seed, Ordering::Relaxed);
    }

    /// Sets the clock.
    pub fn set_time(&self, now: Time) {
        self.inner.state.lock().now = now;
    }

    /// How many files are open.
    pub fn open_count(&self) -> usize {
        self.inner.state.lock().inodes.values().map(|inode| inode.opens).sum()
    }

    /// How many files there are, with those that lost their last name and are open.
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

    /// The inode number in `id`, if this file system gave it out; whether there still is such a
    /// file is for the caller to see.
    fn number_of(&self, id: &FileId) -> crate::Result<u64> {
        let bytes: [u8; 16] = id.as_bytes().try_into().map_err(|_| Error::BadId)?;
        let (file_system, number) = bytes.split_at(8);
        if file_system != self.number.to_be_bytes() {
            return Err(Error::BadId);
        }
        Ok(u64::from_be_bytes(number.try_into().map_err(|_| Error::BadId)?))
    }

    fn hesitate(&self, patience: Patience) -> crate::Result<()> {
        let before = self.reluctance.load(Ordering::Relaxed);
        if before == 0 || patience == Patience::Any {
            return Ok(());
        }
        // Marsaglia's xorshift: any sequence will do.
        let mut word = before;
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.reluctance.store(word, Ordering::Relaxed);
        if word.count_ones().is_multiple_of(2) { Err(Error::WouldBlock) } else { Ok(()) }
    }

    fn ask_fault(&self, call: Call, id: &FileId) -> crate::Result<()> {
        // It may have the caller wait, and nobody else.
        let fault = self.fault.lock().clone();
        fault.and_then(|fault| fault(call, id)).map_or(Ok(()), Err)
    }
}
