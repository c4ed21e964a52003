//! [`crate::commit`] has commits, [`crate::recovery`] recovery.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_tree::statement::revocation_reason;
use vouch_tree::{BlockHandle, HostId, Iv};

use crate::disk::{Disk, SystemDisk};
use crate::frames::checked_kind;
use crate::garbage::Garbage;
use crate::index::{Index, PackPosition};
use crate::layout::{Layout, PackClass};
use crate::lock::WriterLock;
use crate::manifest::{GENERATION_OF_NEW, Manifest, Revision};
use crate::pack;
use crate::pack_file::{Location, PackFiles};
use crate::pack_stream::{FileFactory, LANE_COUNT_MAX, PackStream, Unsynced};
use crate::recovery::Unfinished;
use crate::view::{View, finish_commit, sync_created};
use crate::{Error, FrameSink, FrameSource, PutCounts, Result};

#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub lock_wait: Duration,
    /// New records of each class in memory (some 60 bytes each).
    pub fresh_count_max: usize,
    /// Of new packs. `None`: they grow with the database; in buckets they have the longest length.
    pub pack_len: Option<u32>,
    /// File data of each thread comes into packs of its own. If a thread stays in one directory, readers
    /// of that directory fetch little of others. Not in buckets.
    pub packs_by_thread: bool,
    /// Adopts an interrupted writer's data, instead of leaving it for the next one.
    pub adopt: bool,
    pub disk: Arc<dyn Disk>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            lock_wait: Duration::ZERO,
            fresh_count_max: 128 << 10,
            pack_len: None,
            packs_by_thread: false,
            adopt: true,
            disk: Arc::new(SystemDisk),
        }
    }
}

#[derive(Debug, Clone)]
pub struct NewRevision {
    pub number: u64,
    /// Seconds since 1970.
    pub start: i64,
    pub fsinfo: BlockHandle,
    /// The signed fsinfo as in GETFSINFO.
    pub signed: Vec<u8>,
    /// Keeps the revision; taken from an older one.
    pub tag: Option<String>,
    pub companions: Vec<BlockHandle>,
    /// Revisions to keep, with this and besides tagged ones; `None`: all.
    pub keep: Option<usize>,
    /// Signed under a later certificate than the head: drops revisions with this number or higher,
    /// even with tags.
    pub supersedes: bool,
    /// Proves the revision in the log. `None` keeps the earlier evidence.
    pub evidence: Option<Box<LogEvidence>>,
}

/// Shared among threads. Holds the database's lock until dropped. Frames are durable after the next
/// commit or checkpoint. After a failed write, all but reading returns [`Error::Broken`]; the next
/// writer adopts the intact rest. A full disk gets back what no manifest names.
#[derive(Debug)]
pub struct Writer {
    pub(crate) file_factory: FileFactory,
    fresh_count_max: usize,
    pub(crate) streams: [Mutex<PackStream>; 2],
    pub(crate) index: RwLock<Arc<RunIndex>>,
    pub(crate) index_edit: Mutex<()>,
    pub(crate) committed: Mutex<Manifest>,
    /// Of a directory.
    pub(crate) garbage: Mutex<Garbage>,
    /// New files of the log; of a directory.
    pub(crate) unsynced_log: Mutex<Vec<Unsynced>>,
    /// With new files of the log.
    pub(crate) log_dirs: Mutex<BTreeSet<PathBuf>>,
    pub(crate) files: PackFiles,
    pub(crate) counts: Counts,
    pub(crate) adopted: PutCounts,
    broken: OnceLock<String>,
    is_disk_full: AtomicBool,
    pub(crate) unfinished: Unfinished,
    /// Bytes stored since the last generation.
    pub(crate) stored_len: AtomicU64,
    pub(crate) lock: WriterLock,
}

#[derive(Debug, Clone)]
pub(crate) struct RunIndex {
    pub(crate) index: Index,
    pub(crate) committed: usize,
    pub(crate) version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Orphans {
    Adopt,
    Drop(Duration),
}

impl Writer {
    pub(crate) fn open(path: &Path, options: &WriteOptions, orphans: Orphans) -> Result<Self> {
        let layout = Layout::open(path)?;
        // A missing database takes no lock. A bucket is asked once, under the lock.
        if layout.bucket().is_none() && !layout.manifest().exists() {
            return Err(Error::NotFound { path: path.to_owned() });
        }
        let lock = WriterLock::take(&layout, options.lock_wait)?;
        if !layout.refresh(Duration::ZERO)? {
            return Err(Error::NotFound { path: path.to_owned() });
        }
        if layout.bucket().is_none() {
            finish_commit(&layout, &*options.disk)?;
        }
        let view = View::load(&layout, None)?;
        let manifest = view.manifest().clone();
        // Each object of a bucket costs a request.
        let is_local = layout.bucket().is_none();
        if is_local && manifest.generation == GENERATION_OF_NEW {
            sync_created(layout.root(), &*options.disk)?;
        }
        let pack_len = options.pack_len.or((!is_local).then_some(pack::PACK_LEN_MAX));
        let file_factory = FileFactory {
            disk: layout.disk(&options.disk),
            layout,
            iv: manifest.iv,
            pack_len,
            packs_len: AtomicU64::new(manifest.packs.iter().map(|pack| pack.len).sum()),
            next_pack: AtomicU32::new(manifest.next_pack),
            next_segment: AtomicU32::new(manifest.next_segment),
        };
        let index = RunIndex {
            index: view.index().clone(),
            committed: manifest.segments.len(),
            version: 0,
        };
        let mut writer = Self {
            file_factory,
            fresh_count_max: options.fresh_count_max.max(1),
            streams: PackClass::BOTH.map(|class| {
                let is_apart = class == PackClass::Data && is_local && options.packs_by_thread;
                let lane_count_max = if is_apart { LANE_COUNT_MAX } else { 1 };
                Mutex::new(PackStream::new(class, lane_count_max))
            }),
            index: RwLock::new(Arc::new(index)),
            index_edit: Mutex::default(),
            committed: Mutex::new(manifest),
            garbage: Mutex::default(),
            unsynced_log: Mutex::default(),
            log_dirs: Mutex::default(),
            files: PackFiles::default(),
            counts: Counts::default(),
            adopted: PutCounts::default(),
            broken: OnceLock::new(),
            is_disk_full: AtomicBool::new(false),
            unfinished: Unfinished::default(),
            stored_len: AtomicU64::new(0),
            lock,
        };
        (writer.adopted, writer.unfinished) = writer.adopt_orphans(orphans)?;
        // In a bucket this costs a request.
        if writer.file_factory.layout.bucket().is_none() || writer.lock.has_leftovers() {
            writer.mend_checkpoint()?;
        }
        Ok(writer)
    }

    pub fn hostid(&self) -> HostId {
        self.committed.lock().hostid
    }

    pub fn iv(&self) -> Iv {
        self.file_factory.iv
    }

    pub fn head(&self) -> Option<Arc<[u8]>> {
        self.committed.lock().head.clone()
    }

    pub fn revisions(&self) -> Vec<Revision> {
        self.committed.lock().revisions.clone()
    }

    /// Without the evidence.
    pub fn statements(&self) -> Vec<Vec<u8>> {
        let mut statements = self.committed.lock().statements.clone();
        statements.retain(|statement| !is_evidence(statement));
        statements
    }

    /// The reason, if a statement here revokes the tree's key.
    pub fn revocation(&self) -> Option<String> {
        revocation_reason(&self.hostid(), &self.statements())
    }

    pub fn companions(&self) -> Vec<BlockHandle> {
        self.committed.lock().companions.clone()
    }

    pub fn progress(&self) -> PutCounts {
        self.counts.read()
    }

    /// Counts what a killed writer left.
    pub fn adopted(&self) -> PutCounts {
        self.adopted
    }

    pub fn path(&self) -> &Path {
        self.file_factory.layout.root()
    }

    pub fn publisher_dir(&self) -> Result<PathBuf> {
        let path = self.file_factory.layout.publisher();
        self.file_factory.disk.create_dir(&path).map_err(Error::io("create", &path))?;
        Ok(path)
    }

    pub(crate) fn place(&self, handle: &BlockHandle) -> Result<Option<PackPosition>> {
        let before = self.index.read().clone();
        if let Some(place) = before.index.find(handle)? {
            return Ok(Some(place));
        }
        for stream in &self.streams {
            if let Some(place) = stream.lock().fresh.get(handle) {
                return Ok(Some(*place));
            }
        }
        let after = self.index.read().clone();
        if after.version == before.version { Ok(None) } else { after.index.find(handle) }
    }

    fn stream(&self, class: PackClass) -> &Mutex<PackStream> {
        &self.streams[class as usize]
    }

    fn append(
        &self,
        handle: &BlockHandle,
        frame: &[u8],
        searched_index: &RunIndex,
    ) -> Result<bool> {
        let kind = checked_kind(frame)?;
        let mutex = self.stream(PackClass::of(kind));
        let mut stream = mutex.lock();
        if stream.fresh.contains_key(handle) {
            return Ok(false);
        }
        let index = self.index.read().clone();
        if index.version != searched_index.version && index.index.contains(handle)? {
            return Ok(false);
        }
        self.append_locked(&mut stream, handle, frame)?;
        let overdue = stream.is_overdue();
        drop(stream);
        if overdue {
            self.sync_overdue(mutex)?
        }
        self.checkpoint_upload(frame.len())?;
        Ok(true)
    }

    pub(crate) fn append_moved(&self, handle: &BlockHandle, frame: &[u8]) -> Result<()> {
        let stream = self.stream(PackClass::of(checked_kind(frame)?));
        self.append_locked(&mut stream.lock(), handle, frame)?;
        self.sync_overdue(stream)
    }

    /// Frees local space, and lets any machine continue an interrupted publication.
    fn checkpoint_upload(&self, len: usize) -> Result<()> {
        if self.file_factory.layout.bucket().is_none() {
            return Ok(());
        }
        let before = self.stored_len.fetch_add(len as u64, Ordering::Relaxed);
        let is_due = before / CHECKPOINT_LEN < (before + len as u64) / CHECKPOINT_LEN;
        if is_due { self.checkpoint() } else { Ok(()) }
    }

    fn sync_overdue(&self, stream: &Mutex<PackStream>) -> Result<()> {
        let overdue = stream.lock().overdue();
        if !overdue.is_empty() {
            self.break_on_error(Unsynced::sync_all(&overdue))?;
            stream.lock().synced(&overdue);
        }
        Ok(())
    }

    fn append_locked(
        &self,
        stream: &mut PackStream,
        handle: &BlockHandle,
        frame: &[u8],
    ) -> Result<()> {
        self.check_unbroken()?;
        self.break_on_error(stream.append(
            &self.file_factory,
            handle,
            checked_kind(frame)?,
            frame,
        ))?;
        self.spill_when_full(stream)
    }

    pub(crate) fn spill_when_full(&self, stream: &mut PackStream) -> Result<()> {
        if stream.fresh.len() >= self.fresh_count_max {
            self.break_on_error(self.spill(stream))
        } else {
            Ok(())
        }
    }

    pub(crate) fn check_unbroken(&self) -> Result<()> {
        match self.broken.get() {
            Some(first) => Err(Error::Broken { first: first.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn break_on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            if matches!(error, Error::NoSpace { .. }) {
                self.is_disk_full.store(true, Ordering::Relaxed);
            }
            let _ = self.broken.set(error.to_string());
        })
    }
}

impl FrameSource for Writer {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>> {
        let Some(place) = self.place(handle)? else { return Ok(None) };
        let class = PackClass::of(place.kind);
        self.break_on_error(self.stream(class).lock().flush_for_reading(place.pack))?;
        let pack =
            self.files.open(&self.file_factory.layout, class, place.pack, &self.file_factory.iv)?;
        Location::new(pack, &place).read_frame().map(Some)
    }
}

impl FrameSink for Writer {
    fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        self.place(handle).map(|place| place.is_some())
    }

    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool> {
        checked_kind(frame)?;
        debug_assert_eq!(
            self.file_factory.iv.handle_of(frame),
            *handle,
            "the caller vouches for the handle"
        );
        self.check_unbroken()?;
        let index = self.index.read().clone();
        let new = !index.index.contains(handle)? && self.append(handle, frame, &index)?;
        self.counts.add(new, frame.len() as u64);
        Ok(new)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_disk_full.load(Ordering::Relaxed) {
            match self.remove_unfinished() {
                Ok(removed) => tracing::info!(
                    bytes = removed.len,
                    "the disk is full: what was stored since the last commit is removed"
                ),
                Err(error) => {
                    tracing::warn!(%error, "the disk is full, and what was stored since the last commit can't be removed")
                }
            }
        } else if self.broken.get().is_none() {
            for stream in &self.streams {
                if let Err(error) = stream.lock().flush() {
                    tracing::warn!(%error, "frames that were not committed are lost");
                }
            }
        }
    }
}

/// Bytes that a bucket's writer commits at once.
const CHECKPOINT_LEN: u64 = 4 << 30;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    new_frames: AtomicU64,
    new_bytes: AtomicU64,
    shared_frames: AtomicU64,
    shared_bytes: AtomicU64,
}

impl Counts {
    pub(crate) fn add(&self, new: bool, len: u64) {
        let (frames, bytes) = if new {
            (&self.new_frames, &self.new_bytes)
        } else {
            (&self.shared_frames, &self.shared_bytes)
        };
        frames.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(len, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> PutCounts {
        PutCounts {
            new_frames: self.new_frames.load(Ordering::Relaxed),
            new_bytes: self.new_bytes.load(Ordering::Relaxed),
            shared_frames: self.shared_frames.load(Ordering::Relaxed),
            shared_bytes: self.shared_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn take(&self) -> PutCounts {
        PutCounts {
            new_frames: self.new_frames.swap(0, Ordering::Relaxed),
            new_bytes: self.new_bytes.swap(0, Ordering::Relaxed),
            shared_frames: self.shared_frames.swap(0, Ordering::Relaxed),
            shared_bytes: self.shared_bytes.swap(0, Ordering::Relaxed),
        }
    }
}
