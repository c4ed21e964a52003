use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::trail::{Disk, DiskFile, Lock, SystemDisk};

#[derive(Clone, Default)]
pub(super) struct FaultyDisk {
    pub(super) full: Arc<AtomicBool>,
    pub(super) writes_left: Arc<Mutex<Option<u64>>>,
    pub(super) copies_on_write: Arc<AtomicBool>,
    pub(super) drops_unsynced: Arc<AtomicBool>,
    pub(super) refuses_lost_count: Arc<AtomicBool>,
}

struct FaultyFile {
    path: std::path::PathBuf,
    file: Box<dyn DiskFile>,
    disk: FaultyDisk,
    synced_len: AtomicU64,
}

impl FaultyDisk {
    fn room(&self) -> io::Result<()> {
        let mut writes_left = self.writes_left.lock().unwrap();
        if self.full.load(Ordering::SeqCst) || *writes_left == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *writes_left = writes_left.map(|left| left - 1);
        Ok(())
    }

    fn file(&self, path: &Path, file: Box<dyn DiskFile>) -> io::Result<Box<dyn DiskFile>> {
        let synced_len = std::fs::metadata(path)?.len().into();
        Ok(Box::new(FaultyFile { path: path.to_owned(), file, disk: self.clone(), synced_len }))
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path, secret: bool) -> io::Result<Box<dyn DiskFile>> {
        self.room()?;
        self.file(path, SystemDisk.create(path, secret)?)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.file(path, SystemDisk.open(path)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.copies_on_write.load(Ordering::SeqCst) {
            self.room()?;
        }
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        SystemDisk.lock(path)
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.disk.copies_on_write.load(Ordering::SeqCst)
            || offset + bytes.len() as u64 > std::fs::metadata(&self.path)?.len()
        {
            self.disk.room()?;
        }
        if self.path.ends_with("lost")
            && self.disk.room().is_ok()
            && self.disk.refuses_lost_count.swap(false, Ordering::SeqCst)
        {
            return Err(io::Error::other("a sector could not be written"));
        }
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let (len, kept) =
            (std::fs::metadata(&self.path)?.len(), self.synced_len.load(Ordering::SeqCst));
        let is_segment = self.path.extension().is_some_and(|extension| extension == "trail");
        if is_segment && self.disk.drops_unsynced.swap(false, Ordering::SeqCst) {
            self.file.write_at(&vec![0; len.saturating_sub(kept) as usize], kept)?;
            return Err(io::Error::other("a page could not be written"));
        }
        self.synced_len.store(len, Ordering::SeqCst);
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}
