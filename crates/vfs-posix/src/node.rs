//! Files that were lately used: a descriptor each (O_PATH: it names the file and opens nothing), found by identity.
//!
//! Bounded: [`Nodes`] keeps at most as many as it was made for, and drops those used least. Those of open files are found besides, so that a file that lost its last
//! name can be asked about for as long as it is open.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use vouch_vfs::{Error, FileId, FileType, Patience, Result};

use crate::mount::Mount;

/// A file.
pub(crate) struct Node {
    pub(crate) id: FileId,
    pub(crate) file_type: FileType,
    pub(crate) mount: Arc<Mount>,
    fd: OwnedFd,
    /// Changes that we made, for file systems whose clock is too coarse to show them.
    changes: AtomicU64,
}

impl Node {
    /// For calls that may read a disk, and can't tell in advance whether they will: `WouldBlock` without patience, unless there is no disk.
    pub(crate) fn at_hand(&self, patience: Patience) -> Result<()> {
        if patience == Patience::None && !self.mount.in_memory { Err(Error::WouldBlock) } else { Ok(()) }
    }

    pub(crate) fn new(id: FileId, file_type: FileType, mount: Arc<Mount>, fd: OwnedFd) -> Arc<Self> {
        Arc::new(Node { id, file_type, mount, fd, changes: AtomicU64::new(0) })
    }

    /// We have changed the file, or are about to.
    pub(crate) fn note_change(&self) {
        if !self.mount.fine_times {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        if self.mount.fine_times { 0 } else { self.changes.load(Ordering::Relaxed) }
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How often a file is open, and its node.
type OpenNodes = HashMap<FileId, (usize, Weak<Node>)>;

/// How many locks the open files are spread over.
const SHARD_COUNT: usize = 16;

/// All files lately used, and all that are open.
pub(crate) struct Nodes {
    recent: Cache<FileId, Arc<Node>>,
    open: [Mutex<OpenNodes>; SHARD_COUNT],
}

impl Nodes {
    /// Keeps up to `count_max` that are not open.
    pub(crate) fn new(count_max: usize) -> Self {
        Nodes { recent: Cache::new(count_max), open: Default::default() }
    }

    pub(crate) fn get(&self, id: &FileId) -> Option<Arc<Node>> {
        self.recent.get(id).or_else(|| self.get_open(id))
    }

    #[cold]
    fn get_open(&self, id: &FileId) -> Option<Arc<Node>> {
        let node = self.shard(id).lock().get(id)?.1.upgrade()?;
        self.recent.insert(*id, Arc::clone(&node));
        Some(node)
    }

    /// Keeps a node, unless there is one of this file: there is one a file, for its count of changes.
    pub(crate) fn keep(&self, node: Arc<Node>) -> Arc<Node> {
        if let Some(known) = self.get(&node.id) {
            return known;
        }
        self.recent.insert(node.id, Arc::clone(&node));
        node
    }

    /// Lets go of a file that is gone; if it is open it is still found.
    pub(crate) fn forget(&self, id: &FileId) {
        self.recent.remove(id);
    }

    pub(crate) fn is_open(&self, id: &FileId) -> bool {
        self.shard(id).lock().contains_key(id)
    }

    pub(crate) fn opened(&self, node: &Arc<Node>) {
        let mut shard = self.shard(&node.id).lock();
        let entry = shard.entry(node.id).or_insert_with(|| (0, Arc::downgrade(node)));
        entry.0 += 1;
    }

    pub(crate) fn closed(&self, id: &FileId) {
        let mut shard = self.shard(id).lock();
        if let Some(entry) = shard.get_mut(id) {
            entry.0 -= 1;
            if entry.0 == 0 {
                shard.remove(id);
            }
        }
    }

    /// Some of the files kept that are not open, to look whether they still exist.
    pub(crate) fn sample(&self, count: usize, skip: usize) -> Vec<Arc<Node>> {
        self.recent.iter().skip(skip).take(count).map(|(_, node)| node).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.recent.len()
    }

    fn shard(&self, id: &FileId) -> &Mutex<OpenNodes> {
        let sum = id.as_bytes().iter().fold(0usize, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        &self.open[sum % SHARD_COUNT]
    }
}
