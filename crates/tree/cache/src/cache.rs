//! Packs by path, look-ups, and eviction within the quota.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::FlockOperation;
use tokio::runtime::Handle;
use vouch_tree::Iv;
use vouch_tree_client::{Client, Tree};
use vouch_tree_store::{PackFile, pack_header};

use crate::fetch::FetchesInProgress;
use crate::pack::{CachedPack, MissingFrames};
use crate::table::PackTable;
use crate::{CacheOptions, Error, Result, io_error};

/// Follows its origin in the background until dropped.
pub struct TreeCache {
    pub(crate) options: CacheOptions,
    pub(crate) client: Arc<Client>,
    /// Set once a replica or the stored newest revision was valid.
    pub(crate) tree: RwLock<Option<Arc<Tree>>>,
    pub(crate) runtime: Handle,
    pub(crate) in_progress: FetchesInProgress,
    pub(crate) counts: Counters,
    packs: RwLock<HashMap<String, Arc<CachedPack>>>,
    /// Only in the previous layout, for readers of its manifest.
    outgoing: Mutex<Vec<String>>,
    pub(crate) index_len: AtomicU64,
    used_len: AtomicI64,
    uses: AtomicU64,
    serials: AtomicU64,
    _lock: File,
}

/// A range of a pack: on the disk or not.
pub enum CachedRange {
    /// All of it: it can be sent at once.
    Ready(Arc<PackFile>),
    /// Missing frames: pass them to [`TreeCache::fetch`], then ask again.
    Absent(MissingFrames),
    /// No tree of this cache has such a pack.
    Unknown,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: AtomicU64,
    pub(crate) fetched: AtomicU64,
    pub(crate) fetched_len: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) evictions: AtomicU64,
}

/// Counts for status and metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheCounts {
    /// Requests with all bytes present.
    pub hits: u64,
    /// Frames fetched from origins.
    pub fetched: u64,
    /// Their bytes.
    pub fetched_len: u64,
    /// Fetches that no origin answered with the right bytes.
    pub failed: u64,
    /// Packs given up for the quota.
    pub evictions: u64,
    /// Bytes on the disk.
    pub used_len: u64,
    /// Bytes of disk at most.
    pub quota: u64,
}

impl fmt::Debug for TreeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeCache").field("dir", &self.options.dir).finish_non_exhaustive()
    }
}

impl TreeCache {
    /// Follows the origin from then on. Serves what it has while no origin answers. Fails with an
    /// empty cache and no origin.
    pub async fn open(client: Arc<Client>, options: CacheOptions) -> Result<Arc<Self>> {
        for dir in [&options.dir, &options.dir.join("packs"), &options.dir.join("index")] {
            std::fs::create_dir_all(dir).map_err(io_error(dir))?;
        }
        let lock = take_lock(&options.dir)?;
        let cache = Arc::new(Self {
            client,
            tree: RwLock::default(),
            runtime: Handle::current(),
            in_progress: FetchesInProgress::default(),
            counts: Counters::default(),
            packs: RwLock::default(),
            outgoing: Mutex::default(),
            index_len: AtomicU64::new(0),
            used_len: AtomicI64::new(0),
            uses: AtomicU64::new(1),
            serials: AtomicU64::new(0),
            _lock: lock,
            options,
        });
        cache.start().await?;
        Ok(cache)
    }

    /// Has manifest and index, as of a database.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Blocks on the disk.
    pub fn cover(&self, path: &str, range: &Range<u64>) -> CachedRange {
        let Some(pack) = self.packs.read().get(path).cloned() else { return CachedRange::Unknown };
        pack.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let frames = pack.table.overlapping(range);
        // Bytes outside of all frames need a file too.
        let frames = if frames.is_empty() { 0..pack.table.places.len().min(1) } else { frames };
        match pack.cover(frames) {
            Ok(file) => {
                self.counts.hits.fetch_add(1, Ordering::Relaxed);
                CachedRange::Ready(file)
            }
            Err(wanted) => CachedRange::Absent(wanted),
        }
    }

    /// Entity tag without quotes: length and first frame.
    pub fn tag(&self, path: &str) -> Option<String> {
        let packs = self.packs.read();
        let table = &packs.get(path)?.table;
        let first = table.places.first().map_or(0, |place| place.handle.prefix());
        Some(format!("{:x}-{first:x}", table.len))
    }

    /// Counts since the start.
    pub fn counts(&self) -> CacheCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheCounts {
            hits: of(&self.counts.hits),
            fetched: of(&self.counts.fetched),
            fetched_len: of(&self.counts.fetched_len),
            failed: of(&self.counts.failed),
            evictions: of(&self.counts.evictions),
            used_len: self.used_len(),
            quota: self.options.quota,
        }
    }

    fn used_len(&self) -> u64 {
        u64::try_from(self.used_len.load(Ordering::Relaxed)).unwrap_or(0)
            + self.index_len.load(Ordering::Relaxed)
    }

    /// Packs with equal tables keep their frames. `is_start`: files of an earlier process have this
    /// layout.
    pub(crate) fn set_layout(&self, tables: HashMap<String, PackTable>, iv: Iv, is_start: bool) {
        let mut packs = self.packs.write();
        for path in self.outgoing.lock().drain(..) {
            if !tables.contains_key(&path)
                && let Some(pack) = packs.remove(&path)
            {
                self.evict(&pack);
            }
        }
        let gone = packs.keys().filter(|path| !tables.contains_key(*path)).cloned().collect();
        *self.outgoing.lock() = gone;
        for (path, table) in tables {
            if let Some(pack) = packs.get(&path) {
                if *pack.table == table {
                    continue;
                }
                self.evict(pack);
            }
            let pack = self.make(&path, table, iv, is_start);
            packs.insert(path, pack);
        }
        if is_start {
            self.remove_strangers(&packs);
        }
    }

    fn make(&self, path: &str, table: PackTable, iv: Iv, is_inherited: bool) -> Arc<CachedPack> {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let header = pack_header(path, &iv).to_vec();
        let pack =
            CachedPack::new(serial, self.options.dir.join(path), table, iv, header, is_inherited);
        self.used_len.fetch_add(pack.used_len.load(Ordering::Relaxed) as i64, Ordering::Relaxed);
        Arc::new(pack)
    }

    fn remove_strangers(&self, packs: &HashMap<String, Arc<CachedPack>>) {
        let dir = self.options.dir.join("packs");
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = format!("packs/{}", entry.file_name().to_string_lossy());
            if !packs.contains_key(&path) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    pub(crate) fn note_growth(&self, pack: &CachedPack, growth: i64) {
        self.used_len.fetch_add(growth, Ordering::Relaxed);
        while self.used_len() > self.options.quota && self.evict_oldest(pack.serial) {}
    }

    /// Least recently used first. O(packs).
    pub(crate) fn evict_oldest(&self, except: u64) -> bool {
        let mut packs = self.packs.write();
        let may_go = |pack: &&Arc<CachedPack>| {
            pack.serial != except && pack.used_len.load(Ordering::Relaxed) > 0
        };
        let oldest = packs
            .values()
            .filter(may_go)
            .min_by_key(|pack| pack.last_use.load(Ordering::Relaxed))
            .cloned();
        let Some(oldest) = oldest else { return false };
        let Some(path) = packs
            .iter()
            .find(|(_, pack)| pack.serial == oldest.serial)
            .map(|(path, _)| path.clone())
        else {
            return false;
        };
        self.evict(&oldest);
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        packs
            .insert(path, Arc::new(oldest.successor(self.serials.fetch_add(1, Ordering::Relaxed))));
        true
    }

    fn evict(&self, pack: &CachedPack) {
        self.used_len.fetch_sub(pack.evict() as i64, Ordering::Relaxed);
    }
}

fn take_lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(io_error(&path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy(PathBuf::from(dir))),
        Err(errno) => Err(io_error(&path)(errno.into())),
    }
}
