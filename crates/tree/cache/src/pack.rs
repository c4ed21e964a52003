//! A sparse file of the pack's length, and the set of present frames.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vouch_tree::Iv;
use vouch_tree_store::{PackFile, RECORD_HEAD_LEN, record_head};

use crate::table::{FramePosition, PackTable};

#[derive(Debug)]
pub(crate) struct CachedPack {
    /// Distinguishes packs that had the same path.
    pub(crate) serial: u64,
    path: PathBuf,
    pub(crate) table: Arc<PackTable>,
    iv: Iv,
    header: Vec<u8>,
    present: Bits,
    /// Checked frames of a file that an earlier process has left.
    inherited: Option<Bits>,
    file: Mutex<FileState>,
    pub(crate) used_len: AtomicU64,
    pub(crate) last_use: AtomicU64,
}

#[derive(Debug)]
enum FileState {
    Kept(Weak<PackFile>),
    Evicted,
}

/// Frames that have to come from an origin.
#[derive(Debug, Clone)]
pub struct MissingFrames {
    pub(crate) pack: Arc<CachedPack>,
    pub(crate) frames: Vec<usize>,
}

impl CachedPack {
    /// `is_inherited`: keeps an existing file that can be this pack.
    pub(crate) fn new(
        serial: u64,
        path: PathBuf,
        table: PackTable,
        iv: Iv,
        header: Vec<u8>,
        is_inherited: bool,
    ) -> Self {
        let found = path.metadata().ok().filter(|found| is_inherited && found.len() == table.len);
        if found.is_none() {
            let _ = std::fs::remove_file(&path);
        }
        let count = table.places.len();
        Self {
            serial,
            path,
            present: Bits::new(count),
            inherited: found.as_ref().map(|_| Bits::new(count)),
            used_len: AtomicU64::new(found.map_or(0, |found| found.blocks() * 512)),
            table: Arc::new(table),
            iv,
            header,
            file: Mutex::new(FileState::Kept(Weak::new())),
            last_use: AtomicU64::new(0),
        }
    }

    pub(crate) fn successor(&self, serial: u64) -> Self {
        let count = self.table.places.len();
        Self {
            serial,
            path: self.path.clone(),
            table: Arc::clone(&self.table),
            iv: self.iv,
            header: self.header.clone(),
            present: Bits::new(count),
            inherited: None,
            file: Mutex::new(FileState::Kept(Weak::new())),
            used_len: AtomicU64::new(0),
            last_use: AtomicU64::new(0),
        }
    }

    pub(crate) fn cover(
        self: &Arc<Self>,
        frames: impl Iterator<Item = usize> + Clone,
    ) -> Result<Arc<PackFile>, MissingFrames> {
        let mut missing: Vec<usize> =
            frames.clone().filter(|frame| !self.present.get(*frame)).collect();
        if missing.is_empty() || self.inherited.is_some() {
            let opened = self.open();
            if let (Some(file), Some(checked)) = (&opened, &self.inherited) {
                missing.retain(|frame| !self.adopt(*frame, file, checked));
            }
            match opened {
                Some(file) if missing.is_empty() => return Ok(file),
                Some(_) => {}
                None => missing = frames.collect(),
            }
        }
        Err(MissingFrames { pack: Arc::clone(self), frames: missing })
    }

    pub(crate) fn is_present(&self, frame: usize) -> bool {
        self.present.get(frame)
    }

    /// An earlier process has written the frame, with the right bytes.
    fn adopt(&self, frame: usize, file: &PackFile, checked: &Bits) -> bool {
        if self.present.get(frame) || checked.get(frame) {
            return self.present.get(frame);
        }
        let place = &self.table.places[frame];
        let mut record = vec![0; RECORD_HEAD_LEN + place.len as usize];
        let is_right = file.read_at(&mut record, place.offset.into()).is_ok()
            && record[..RECORD_HEAD_LEN] == record_head(place.len)
            && self.iv.handle_of(&record[RECORD_HEAD_LEN..]) == place.handle;
        checked.set(frame);
        if is_right {
            self.present.set(frame);
        }
        is_right
    }

    fn open(&self) -> Option<Arc<PackFile>> {
        let mut state = self.file.lock();
        let FileState::Kept(open) = &mut *state else { return None };
        if let Some(file) = open.upgrade() {
            return Some(file);
        }
        let file = Arc::new(PackFile::open_path(&self.path).ok()?);
        *open = Arc::downgrade(&file);
        Some(file)
    }

    /// Returns the growth on disk. Does nothing to an evicted pack.
    pub(crate) fn write(&self, frame: usize, stored: &[u8]) -> io::Result<i64> {
        let place: &FramePosition = &self.table.places[frame];
        let mut record = Vec::with_capacity(RECORD_HEAD_LEN + stored.len() + 3);
        record.extend_from_slice(&record_head(place.len));
        record.extend_from_slice(stored);
        record.resize((place.record().end - place.record().start) as usize, 0);
        let state = self.file.lock();
        if matches!(*state, FileState::Evicted) {
            return Ok(0);
        }
        let file = File::options().write(true).create(true).truncate(false).open(&self.path)?;
        if file.metadata()?.len() != self.table.len {
            file.set_len(self.table.len)?;
            file.write_all_at(&self.header, 0)?;
        }
        file.write_all_at(&record, place.offset.into())?;
        let used_len = file.metadata()?.blocks() * 512;
        let before = self.used_len.swap(used_len, Ordering::Relaxed);
        // Set under the lock: an eviction comes before the write or after this.
        self.present.set(frame);
        Ok(used_len as i64 - before as i64)
    }

    /// Open files stay readable.
    pub(crate) fn evict(&self) -> u64 {
        let mut state = self.file.lock();
        *state = FileState::Evicted;
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "a pack can't be removed from the cache");
        }
        self.used_len.swap(0, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(count: usize) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn get(&self, at: usize) -> bool {
        self.0[at / 64].load(Ordering::Acquire) >> (at % 64) & 1 == 1
    }

    fn set(&self, at: usize) {
        self.0[at / 64].fetch_or(1 << (at % 64), Ordering::Release);
    }
}
