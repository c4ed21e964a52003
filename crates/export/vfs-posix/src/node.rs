//! Recently used files, each an O_PATH descriptor, by identity.
//!
//! Bounded by a [`FileCache`] that several file systems may share; drops the least recently used.
//! Open files are found too, so an open file without names stays usable.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vouch_vfs::{Blocking, Error, FileId, FileType, Result};

use crate::change_counter::ChangeCounter;
use crate::handle;
use crate::mount::Mount;
use crate::quota::usage::CountedSpace;

pub(crate) struct Node {
    pub(crate) id: FileId,
    pub(crate) file_type: FileType,
    pub(crate) mount: Arc<Mount>,
    fd: OwnedFd,
    /// Where the file system's clock is too coarse.
    changes: Option<Arc<ChangeCounter>>,
    unlinked: AtomicBool,
    space: CountedSpace,
}

impl Node {
    /// For calls that may read a disk: `WouldBlock` without blocking, unless the file system is in
    /// memory.
    pub(crate) fn require_cached(&self, blocking: Blocking) -> Result<()> {
        if blocking == Blocking::Forbidden && !self.mount.in_memory {
            Err(Error::WouldBlock)
        } else {
            Ok(())
        }
    }

    pub(crate) fn new(
        id: FileId,
        file_type: FileType,
        mount: Arc<Mount>,
        fd: OwnedFd,
    ) -> Arc<Self> {
        let changes = (!mount.fine_times).then(|| {
            let home = handle::home_of(&id, |_| mount.system);
            ChangeCounter::of(
                home.system,
                FileId::new(&id.as_bytes()[home.own_from..])
                    .expect("a part is shorter than the whole"),
            )
        });
        Arc::new(Node {
            id,
            file_type,
            mount,
            fd,
            changes,
            unlinked: AtomicBool::new(false),
            space: CountedSpace::default(),
        })
    }

    pub(crate) fn note_unlinked(&self) {
        self.unlinked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Relaxed)
    }

    pub(crate) fn note_change(&self) {
        self.changes.iter().for_each(|changes| changes.note());
    }

    /// Counts a change at its end, whatever the result. An earlier count would let readers take old
    /// data for new.
    pub(crate) fn changing(&self) -> Changing<'_> {
        Changing { node: self, _space: self.growing() }
    }

    /// Counts the space that a change takes or frees, for a quota.
    pub(crate) fn growing(&self) -> Growing<'_> {
        if self.mount.usage.is_limited() {
            self.space.learn(self.as_fd());
        }
        Growing(self)
    }

    /// A file that has just been made.
    pub(crate) fn count_new(&self) {
        if self.mount.usage.is_limited() {
            self.space.begin_empty();
            self.space.count(self.as_fd(), &self.mount.usage);
        }
    }

    /// A file that has neither names nor openers any more.
    pub(crate) fn count_removed(&self) {
        self.space.end(self.as_fd(), &self.mount.usage);
    }

    pub(crate) fn changes(&self, changed_ns: u64) -> u64 {
        self.changes.as_ref().map_or(0, |changes| changes.number(changed_ns))
    }
}

pub(crate) struct Changing<'a> {
    node: &'a Node,
    _space: Growing<'a>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.node.note_change();
    }
}

pub(crate) struct Growing<'a>(&'a Node);

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.0.space.count(self.0.as_fd(), &self.0.mount.usage);
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

type OpenNodes = HashMap<FileId, (usize, Weak<Node>)>;

const SHARD_COUNT: usize = 16;

/// Shared by file systems within the process's limit of descriptors.
#[derive(Clone)]
pub struct FileCache(Arc<Cache<Key, Arc<Node>>>);

type Key = (u64, FileId);

impl FileCache {
    pub fn new(count_max: usize) -> Self {
        FileCache(Arc::new(Cache::new(count_max.max(1))))
    }

    /// A quarter of the process's descriptors (the rest is for open files and connections), at most
    /// 65,536, because each pins an inode in the kernel.
    pub(crate) fn of_process() -> Self {
        static OF_PROCESS: OnceLock<FileCache> = OnceLock::new();
        OF_PROCESS.get_or_init(|| FileCache::new(count_default())).clone()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn count_default() -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // The limit may stay.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(131_072);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).min(65_536)
}

pub(crate) struct Nodes {
    recent: FileCache,
    number: u64,
    open: [Mutex<OpenNodes>; SHARD_COUNT],
}

impl Nodes {
    pub(crate) fn new(recent: FileCache) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Nodes { recent, number: NUMBERS.fetch_add(1, Ordering::Relaxed), open: Default::default() }
    }

    fn key(&self, id: &FileId) -> Key {
        (self.number, *id)
    }

    pub(crate) fn get(&self, id: &FileId) -> Option<Arc<Node>> {
        self.recent.0.get(&self.key(id)).or_else(|| self.get_open(id))
    }

    #[cold]
    fn get_open(&self, id: &FileId) -> Option<Arc<Node>> {
        let node = self.shard(id).lock().get(id)?.1.upgrade()?;
        self.recent.0.insert(self.key(id), Arc::clone(&node));
        Some(node)
    }

    pub(crate) fn keep(&self, node: Arc<Node>) -> Arc<Node> {
        if let Some(known) = self.get(&node.id) {
            return known;
        }
        self.recent.0.insert(self.key(&node.id), Arc::clone(&node));
        node
    }

    pub(crate) fn forget(&self, id: &FileId) {
        self.recent.0.remove(&self.key(id));
    }

    pub(crate) fn is_open(&self, id: &FileId) -> bool {
        self.shard(id).lock().contains_key(id)
    }

    pub(crate) fn opened(&self, node: &Arc<Node>) {
        let mut shard = self.shard(&node.id).lock();
        let entry = shard.entry(node.id).or_insert_with(|| (0, Arc::downgrade(node)));
        // The new descriptor is usable, an earlier one may have been dropped.
        *entry = (entry.0 + 1, Arc::downgrade(node));
    }

    /// Files stay open, but are found anew by their identities.
    pub(crate) fn drop_descriptors(&self) {
        self.recent.0.retain(|key, _| key.0 != self.number);
        for shard in &self.open {
            shard
                .lock()
                .values_mut()
                .filter(|(_, node)| node.upgrade().is_some_and(|node| node.mount.handles))
                .for_each(|open| open.1 = Weak::new());
        }
    }

    /// True for the last one.
    pub(crate) fn closed(&self, id: &FileId) -> bool {
        let mut shard = self.shard(id).lock();
        let Some(entry) = shard.get_mut(id) else { return false };
        entry.0 -= 1;
        let is_last = entry.0 == 0;
        if is_last {
            shard.remove(id);
        }
        is_last
    }

    /// Cached files of this file system among `count` entries, to check that they still exist.
    pub(crate) fn sample(&self, count: usize, skip: usize) -> Vec<Arc<Node>> {
        self.recent
            .0
            .iter()
            .skip(skip)
            .take(count)
            .filter(|(key, _)| key.0 == self.number)
            .map(|(_, node)| node)
            .collect()
    }

    pub(crate) fn kept(&self) -> usize {
        self.recent.count()
    }

    fn shard(&self, id: &FileId) -> &Mutex<OpenNodes> {
        let sum = id
            .as_bytes()
            .iter()
            .fold(0usize, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        &self.open[sum % SHARD_COUNT]
    }
}

impl Drop for Nodes {
    /// Drops descriptors of an ended export, so that it can be unmounted.
    fn drop(&mut self) {
        self.recent.0.retain(|key, _| key.0 != self.number);
    }
}
