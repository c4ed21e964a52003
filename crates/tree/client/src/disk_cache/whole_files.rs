//! Whole copies of large files, for FUSE passthrough. `file::whole_file` verifies the content. A
//! copy is valid only while its inode is unchanged since then.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use vouch_tree::BlockHandle;

use super::open_regular;
use super::segment_index::{STAT_BLOCK, SegmentIndex};

/// The rest is for segments, which hold most of this data too.
const QUOTA_SHARE: u64 = 2;

const FILE_SHARE: u64 = 4;

const PREFIX: &str = "whole-";

const UNFINISHED: &str = ".new";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WholeKey {
    pub(crate) top: BlockHandle,
    pub(crate) size: u64,
}

#[derive(Debug)]
pub(crate) struct StoredFile {
    file: File,
    path: PathBuf,
    stamp: Option<FileStamp>,
}

/// Changes with every write, truncation, link or chmod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    len: u64,
    mode: u32,
    links: u64,
    changed: (i64, i64),
}

pub(crate) struct WholeFiles {
    dir: PathBuf,
    index: Arc<SegmentIndex>,
    idle: Mutex<HashMap<WholeKey, StoredFile>>,
    building: Mutex<()>,
}

impl WholeFiles {
    /// Removes unfinished files of killed processes.
    pub(crate) fn open(dir: &Path, index: Arc<SegmentIndex>) -> Self {
        let whole =
            Self { dir: dir.to_owned(), index, idle: Mutex::default(), building: Mutex::default() };
        for (path, _) in whole.list_files() {
            if path.extension().is_some_and(|e| e == "new") && lock(&path).is_ok() {
                let _ = fs::remove_file(path);
            }
        }
        whole
    }

    pub(crate) fn fits(&self, len: u64) -> bool {
        len <= self.index.quota_bytes() / FILE_SHARE
    }

    pub(crate) fn start_building(&self) -> Option<MutexGuard<'_, ()>> {
        self.building.try_lock()
    }

    pub(crate) fn has(&self, key: &WholeKey) -> bool {
        self.idle.lock().contains_key(key)
    }

    pub(crate) fn take(&self, key: &WholeKey) -> Option<StoredFile> {
        let body = self.idle.lock().remove(key)?;
        if body.is_intact() {
            return Some(body);
        }
        tracing::warn!(
            "disk cache: {} was modified by another program; removing it",
            body.path.display()
        );
        self.remove(body);
        None
    }

    pub(crate) fn put(&self, key: WholeKey, mut body: StoredFile) {
        match body.stamp.map_or_else(|| FileStamp::of(&body.file), Ok) {
            Ok(stamp) => body.stamp = Some(stamp),
            Err(_) => return self.remove(body),
        }
        if let Some(twin) = self.idle.lock().insert(key, body) {
            drop(twin);
        }
    }

    pub(crate) fn remove(&self, body: StoredFile) {
        let _ = fs::remove_file(&body.path);
    }

    /// An unverified file of an earlier process. `WouldBlock` if this or another process uses it.
    /// Another user's file is removed: the kernel would read what its owner writes later.
    pub(crate) fn open_existing(&self, key: &WholeKey) -> io::Result<Option<StoredFile>> {
        let path = self.path(key);
        match lock(&path) {
            Ok(file) if is_ours(&file) => Ok(Some(StoredFile { file, path, stamp: None })),
            Ok(_) => fs::remove_file(path).map(|()| None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A file that an earlier process left open, with its lock; `true` if its content was being
    /// changed.
    pub(crate) fn reopen(&self, key: &WholeKey, inode: u64) -> Option<(StoredFile, bool)> {
        let path = self.path(key);
        [(path.clone(), false), (unfinished(&path), true)].into_iter().find_map(
            |(path, is_unfinished)| {
                let file = open_regular(&path, true).ok().filter(is_ours)?;
                let is_same = file.metadata().is_ok_and(|metadata| metadata.ino() == inode);
                is_same.then_some((StoredFile { file, path, stamp: None }, is_unfinished))
            },
        )
    }

    pub(crate) fn create(&self, key: &WholeKey) -> io::Result<Option<StoredFile>> {
        let _turn = self.index.lock_directory()?;
        if !self.make_room(key.size) {
            return Ok(None);
        }
        self.index.make_room(key.size, &mut |_, _| {})?;
        let path = unfinished(&self.path(key));
        let file = match OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&path)
        {
            // Another process is writing it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made?,
        };
        let body = StoredFile { file, path, stamp: None };
        let taken = flock(&body.file, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| fallocate(&body.file, FallocateFlags::empty(), 0, key.size));
        if let Err(error) = taken {
            self.remove(body);
            return Err(error.into());
        }
        Ok(Some(body))
    }

    pub(crate) fn finish(&self, key: &WholeKey, mut body: StoredFile) -> io::Result<StoredFile> {
        let path = self.path(key);
        match fs::rename(&body.path, &path) {
            Ok(()) => {
                body.path = path;
                Ok(body)
            }
            Err(error) => {
                self.remove(body);
                Err(error)
            }
        }
    }

    pub(crate) fn mark_unfinished(&self, body: &mut StoredFile) -> io::Result<()> {
        let path = unfinished(&body.path);
        fs::rename(&body.path, &path)?;
        body.path = path;
        Ok(())
    }

    fn path(&self, key: &WholeKey) -> PathBuf {
        let top: String = key.top.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        self.dir.join(format!("{PREFIX}{top}-{:016x}", key.size))
    }

    fn list_files(&self) -> Vec<(PathBuf, fs::Metadata)> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().filter_map(Result::ok);
        let ours =
            entries.filter(|e| e.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)));
        ours.filter_map(|e| Some((e.path(), e.metadata().ok()?))).collect()
    }

    fn make_room(&self, wanted: u64) -> bool {
        let quota = self.index.quota_bytes() / QUOTA_SHARE;
        let mut all = self.list_files();
        all.sort_by_key(|(_, meta)| meta.atime().max(meta.mtime()));
        let mut used: u64 = all.iter().map(|(_, meta)| meta.blocks() * STAT_BLOCK).sum();
        for (path, meta) in all {
            if used + wanted <= quota {
                break;
            }
            let mut idle = self.idle.lock();
            let ours = idle.iter().find(|(_, body)| body.path == path).map(|(key, _)| *key);
            // Files of other processes are locked; unused files of this process are in `idle`.
            let is_free =
                ours.map_or_else(|| lock(&path).is_ok(), |key| idle.remove(&key).is_some());
            if is_free && fs::remove_file(&path).is_ok() {
                used = used.saturating_sub(meta.blocks() * STAT_BLOCK);
            }
        }
        used + wanted <= quota
    }
}

impl StoredFile {
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn is_intact(&self) -> bool {
        self.stamp.is_some() && FileStamp::of(&self.file).ok() == self.stamp
    }
}

impl FileStamp {
    fn of(file: &File) -> io::Result<Self> {
        let m = file.metadata()?;
        Ok(Self {
            inode: m.ino(),
            len: m.len(),
            mode: m.mode(),
            links: m.nlink(),
            changed: (m.ctime(), m.ctime_nsec()),
        })
    }
}

/// Nobody else can write to it.
fn is_ours(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| {
        metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
    })
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

fn lock(path: &Path) -> io::Result<File> {
    let file = open_regular(path, true)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}
