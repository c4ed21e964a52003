//! Index of the segments of a cache directory, and eviction by segment.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use vouch_tree::{BlockHandle, FRAME_LEN_MAX};

use super::open_regular;
use super::segment::{
    LIST_ENTRY_LEN, RECORD_HEAD_LEN, Span, decode_list, encode_list, read_frame, scan,
};

/// 1/64 of the quota: evicting one segment loses little, and few files are open.
const SEGMENT_SHARE: u64 = 64;
const SEGMENT_LEN_MIN: u64 = 512 * 1024;
const SEGMENT_LEN_MAX: u64 = 256 << 20;

const QUOTA_MIN: u64 = 4 << 20;

const BATCH_LEN_MAX: u64 = 1 << 20;

/// Ends segments of very small frames early.
const LIST_SHARE: u64 = 16;

/// Of any quota.
const LIST_LEN_MAX: u64 = SEGMENT_LEN_MAX / LIST_SHARE + 4096;

/// Share of the next segment for recently read frames that survive an eviction.
const KEPT_SHARE: u64 = 4;

const RECORD_LEN_MAX: u64 = (RECORD_HEAD_LEN + FRAME_LEN_MAX) as u64;

/// The holder lists the directory and removes some files.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

const LOCK_PAUSE: Duration = Duration::from_millis(10);

pub(crate) const STAT_BLOCK: u64 = 512;

pub(crate) type SegmentId = u64;

struct Location {
    segment: SegmentId,
    span: Span,
    used: AtomicBool,
}

pub(crate) struct SegmentIndex {
    dir: PathBuf,
    quota: u64,
    segment_len: u64,
    index: RwLock<HashMap<BlockHandle, Location>>,
    segments: RwLock<BTreeMap<SegmentId, Arc<File>>>,
    used: AtomicU64,
    eviction_lock: Mutex<()>,
}

/// Its file lock tells other processes that it grows.
pub(crate) struct OpenSegment {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<File>,
    pub(crate) len: u64,
    pub(crate) records: Vec<(BlockHandle, Span)>,
}

impl SegmentIndex {
    pub(crate) fn open(dir: &Path, quota: u64) -> io::Result<Self> {
        let quota = quota.max(QUOTA_MIN);
        let index = Self {
            dir: dir.to_owned(),
            quota,
            segment_len: (quota / SEGMENT_SHARE).clamp(SEGMENT_LEN_MIN, SEGMENT_LEN_MAX),
            index: RwLock::default(),
            segments: RwLock::default(),
            used: AtomicU64::new(0),
            eviction_lock: Mutex::default(),
        };
        index.make_dir()?;
        for id in index.list_segments()? {
            if let Err(error) = index.load_segment(id) {
                tracing::warn!("disk cache {}: {error}; ignored", index.path(id).display());
            }
        }
        index.measure();
        Ok(index)
    }

    fn make_dir(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    fn list_segments(&self) -> io::Result<Vec<SegmentId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let id = name
                .to_str()
                .and_then(|name| name.strip_prefix("segment-"))
                .filter(|hex| hex.len() == 16);
            found.extend(id.and_then(|hex| SegmentId::from_str_radix(hex, 16).ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(format!("segment-{id:016x}"))
    }

    fn list_path(&self, id: SegmentId) -> PathBuf {
        self.dir.join(format!("segment-{id:016x}.list"))
    }

    fn load_segment(&self, id: SegmentId) -> io::Result<()> {
        let file = open_regular(&self.path(id), false)?;
        let len = file.metadata()?.len();
        let records = match self.read_list(id).ok().and_then(|bytes| decode_list(&bytes)) {
            Some(records) => records,
            None => {
                let (records, _) = scan(&file, len)?;
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    let _ = self.write_list(id, &records);
                    let _ = flock(&file, FlockOperation::Unlock);
                }
                records
            }
        };
        self.segments.write().insert(id, Arc::new(file));
        let mut index = self.index.write();
        for (handle, span) in records {
            if u64::from(span.offset) + u64::from(span.len) <= len {
                index.insert(handle, Location { segment: id, span, used: AtomicBool::new(false) });
            }
        }
        Ok(())
    }

    pub(crate) fn contains(&self, handle: &BlockHandle) -> bool {
        self.index.read().contains_key(handle)
    }

    pub(crate) fn get(&self, handle: &BlockHandle) -> Option<Vec<u8>> {
        let (segment, span) = {
            let index = self.index.read();
            let place = index.get(handle)?;
            place.used.store(true, Ordering::Relaxed);
            (place.segment, place.span)
        };
        let file = self.segments.read().get(&segment).cloned()?;
        match read_frame(&file, span) {
            Ok(frame) => Some(frame),
            Err(error) => {
                tracing::warn!(
                    "disk cache {}: {error}; fetching the frame again",
                    self.path(segment).display()
                );
                self.remove_frame(handle);
                None
            }
        }
    }

    pub(crate) fn remove_frame(&self, handle: &BlockHandle) {
        self.index.write().remove(handle);
    }

    /// Excludes other threads and processes until the file is dropped. `TimedOut` after
    /// [`LOCK_WAIT_MAX`]: a cache never blocks its users.
    pub(crate) fn lock_directory(&self) -> io::Result<File> {
        let directory = File::open(&self.dir)?;
        let until = Instant::now() + LOCK_WAIT_MAX;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(directory),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                    std::thread::sleep(LOCK_PAUSE)
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "another process holds the lock of the cache directory",
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn start_segment(
        &self,
        keep: &mut dyn FnMut(&BlockHandle, Vec<u8>),
    ) -> io::Result<OpenSegment> {
        self.make_dir()?;
        let _turn = self.lock_directory()?;
        self.make_room(self.segment_len + self.segment_len / LIST_SHARE, keep)?;
        let last = self.list_segments()?.last().copied().unwrap_or(0);
        let mut ids = (last..SegmentId::MAX).map(|before| before + 1);
        let (id, file) = loop {
            let id =
                ids.next().ok_or_else(|| io::Error::other("no number is left for a segment"))?;
            match OpenOptions::new().read(true).write(true).create_new(true).open(self.path(id)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => break (id, Arc::new(made?)),
            }
        };
        flock(&*file, FlockOperation::NonBlockingLockExclusive)?;
        self.segments.write().insert(id, Arc::clone(&file));
        Ok(OpenSegment { id, file, len: 0, records: Vec::new() })
    }

    pub(crate) const fn has_room(&self, open: &OpenSegment, more: u64, count: usize) -> bool {
        let list = ((open.records.len() + count) * LIST_ENTRY_LEN) as u64;
        open.len + more <= self.segment_len && list <= self.segment_len / LIST_SHARE
    }

    pub(crate) fn batch_len_max(&self) -> u64 {
        (self.segment_len - self.segment_len / KEPT_SHARE)
            .saturating_sub(RECORD_LEN_MAX)
            .min(BATCH_LEN_MAX)
    }

    pub(crate) fn add_records(
        &self,
        open: &mut OpenSegment,
        records: Vec<(BlockHandle, Span)>,
        len: u64,
    ) {
        let mut index = self.index.write();
        for (handle, span) in &records {
            index.insert(
                *handle,
                Location { segment: open.id, span: *span, used: AtomicBool::new(false) },
            );
        }
        open.records.extend(records);
        self.used.fetch_add(len - open.len, Ordering::Relaxed);
        open.len = len;
    }

    pub(crate) fn close_segment(&self, open: &OpenSegment) {
        if let Err(error) = self.write_list(open.id, &open.records) {
            tracing::debug!("disk cache: list of segment {}: {error}", open.id);
        }
        let _ = flock(&*open.file, FlockOperation::Unlock);
    }

    fn read_list(&self, id: SegmentId) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        open_regular(&self.list_path(id), false)?.take(LIST_LEN_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write_list(&self, id: SegmentId, records: &[(BlockHandle, Span)]) -> io::Result<()> {
        let (path, fresh) = (self.list_path(id), self.dir.join(format!("segment-{id:016x}.new")));
        // Of a killed process.
        let _ = fs::remove_file(&fresh);
        let written = File::create_new(&fresh)
            .and_then(|mut file| file.write_all(&encode_list(records)))
            .and_then(|()| fs::rename(&fresh, path));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written
    }

    pub(crate) fn make_room(
        &self,
        wanted: u64,
        keep: &mut dyn FnMut(&BlockHandle, Vec<u8>),
    ) -> io::Result<()> {
        let _evicting = self.eviction_lock.lock();
        let mut budget = self.segment_len / KEPT_SHARE;
        loop {
            let used = self.measure();
            if used + wanted <= self.quota {
                return Ok(());
            }
            let Some(oldest) = self.list_segments()?.first().copied() else { return Ok(()) };
            self.evict(oldest, &mut budget, keep)?;
        }
    }

    pub(crate) fn shrink(&self) {
        let _evicting = self.eviction_lock.lock();
        if let Some(oldest) = self.list_segments().ok().and_then(|all| all.first().copied()) {
            let _ = self.evict(oldest, &mut 0, &mut |_, _| {});
        }
    }

    fn evict(
        &self,
        id: SegmentId,
        budget: &mut u64,
        keep: &mut dyn FnMut(&BlockHandle, Vec<u8>),
    ) -> io::Result<()> {
        for path in [self.path(id), self.list_path(id)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let file = self.segments.write().remove(&id);
        let mut used = Vec::new();
        self.index.write().retain(|handle, place| {
            if place.segment == id && place.used.load(Ordering::Relaxed) {
                used.push((*handle, place.span));
            }
            place.segment != id
        });
        for (handle, span) in used {
            let record_len = RECORD_HEAD_LEN as u64 + u64::from(span.len);
            if *budget >= record_len
                && let Some(file) = &file
                && let Ok(frame) = read_frame(file, span)
            {
                *budget -= record_len;
                keep(&handle, frame);
            }
        }
        Ok(())
    }

    fn measure(&self) -> u64 {
        let mut total = 0;
        for entry in fs::read_dir(&self.dir).into_iter().flatten().filter_map(Result::ok) {
            let Ok(meta) = entry.metadata() else { continue };
            let name = entry.file_name();
            let grows = name.len() == "segment-0123456789abcdef".len()
                && !self.dir.join(name).with_extension("list").exists();
            let occupied = meta.blocks() * STAT_BLOCK;
            total += if grows {
                occupied.max(self.segment_len) + self.segment_len / LIST_SHARE
            } else {
                occupied
            };
        }
        self.used.store(total, Ordering::Relaxed);
        total
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) const fn quota_bytes(&self) -> u64 {
        self.quota
    }
}
