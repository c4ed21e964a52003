//! Open packs and segments, and locations of frames in packs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use rustix::process::{Resource, getrlimit};
use vouch_tree::Iv;

use crate::index::PackPosition;
use crate::layout::{Layout, PackClass, parse_pack_name};
use crate::pack;
use crate::{Error, Result};

/// Stays readable when a collection unlinks it.
#[derive(Debug)]
pub struct PackFile {
    id: u32,
    file: File,
    path: PathBuf,
}

impl PackFile {
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(layout: &Layout, class: PackClass, id: u32, iv: &Iv) -> Result<Self> {
        let (path, file) = open_pack(layout, class, id)?;
        let mut found = [0; pack::HEADER_LEN];
        match file.read_exact_at(&mut found, 0) {
            Ok(()) if found == pack::header(class, iv) => Ok(Self { id, file, path }),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(Error::io("read", &path)(error))
            }
            _ => Err(Error::damaged(&path, "not a pack of this database")),
        }
    }

    /// A file with the layout of a pack, outside of a database.
    pub fn open_path(path: &Path) -> io::Result<Self> {
        Ok(Self { id: 0, file: File::open(path)?, path: path.to_owned() })
    }

    pub(crate) fn open_segment(layout: &Layout, id: u32) -> Result<Self> {
        let path = layout.segment(id);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        Ok(Self { id, file, path })
    }

    /// Nanoseconds since 1970.
    pub fn modified_ns(&self) -> Result<i128> {
        let found = self.file.metadata().map_err(Error::io("look at", &self.path))?;
        Ok(i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()))
    }

    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::damaged(&self.path, "the pack ends early"),
            _ => Error::io("read", &self.path)(error),
        })
    }
}

/// `path`: below the database's directory.
pub fn pack_header(path: &str, iv: &Iv) -> [u8; pack::HEADER_LEN] {
    let name = path.rsplit('/').next().unwrap_or(path);
    pack::header(parse_pack_name(name).map_or(PackClass::Data, |(class, _)| class), iv)
}

/// A commit may move a bucket's pack to the cache, which may evict it, between look-up and open.
fn open_pack(layout: &Layout, class: PackClass, id: u32) -> Result<(PathBuf, File)> {
    let mut attempts = if layout.bucket().is_some() { ATTEMPTS_MAX } else { 1 };
    loop {
        let path = layout.readable_pack(class, id)?;
        attempts -= 1;
        match File::open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts > 0 => {}
            Err(error) => return Err(Error::io("open", &path)(error)),
        }
    }
}

const ATTEMPTS_MAX: u32 = 3;

impl AsFd for PackFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[derive(Debug, Clone)]
pub struct Location {
    pub pack: Arc<PackFile>,
    /// Record: `u32 1`, `u32 len`, the frame, zeros to a multiple of 4.
    pub offset: u64,
    pub frame_len: u32,
}

impl Location {
    pub(crate) fn new(pack: Arc<PackFile>, place: &PackPosition) -> Self {
        Self { pack, offset: place.offset.into(), frame_len: place.len }
    }

    pub fn record_len(&self) -> u64 {
        pack::record_len(self.frame_len).into()
    }

    pub fn end(&self) -> u64 {
        self.offset + self.record_len()
    }

    /// Adjacent to `before`, so that one sendfile sends both.
    pub fn follows(&self, before: &Self) -> bool {
        self.pack.id == before.pack.id && self.offset == before.end()
    }

    pub fn read_frame(&self) -> Result<Vec<u8>> {
        let mut record = Vec::new();
        self.read_record(&mut record)?;
        if record[..pack::RECORD_HEAD_LEN] != pack::record_head(self.frame_len) {
            return Err(Error::damaged(
                &self.pack.path,
                format!("no record at offset {}", self.offset),
            ));
        }
        record.truncate(pack::RECORD_HEAD_LEN + self.frame_len as usize);
        record.drain(..pack::RECORD_HEAD_LEN);
        Ok(record)
    }

    pub fn read_record(&self, out: &mut Vec<u8>) -> Result<()> {
        let before = out.len();
        out.resize(before + self.record_len() as usize, 0);
        self.pack.read_at(&mut out[before..], self.offset).inspect_err(|_| out.truncate(before))
    }
}

#[derive(Debug, Default)]
pub(crate) struct PackFiles {
    open: RwLock<HashMap<u32, OpenPackFile>>,
}

#[derive(Debug)]
struct OpenPackFile {
    file: Arc<PackFile>,
    used: AtomicBool,
}

impl PackFiles {
    pub(crate) fn open(
        &self,
        layout: &Layout,
        class: PackClass,
        id: u32,
        iv: &Iv,
    ) -> Result<Arc<PackFile>> {
        if let Some(kept) = self.open.read().get(&id) {
            kept.used.store(true, Ordering::Relaxed);
            return Ok(kept.file.clone());
        }
        let file = Arc::new(PackFile::open(layout, class, id, iv)?);
        let mut open = self.open.write();
        if open.len() >= open_count_max() {
            Self::make_room(&mut open);
        }
        Ok(open
            .entry(id)
            .or_insert_with(|| OpenPackFile { file, used: AtomicBool::new(true) })
            .file
            .clone())
    }

    pub(crate) fn retain(&self, mut keep: impl FnMut(u32) -> bool) {
        self.open.write().retain(|id, _| keep(*id));
    }

    /// Second-chance eviction, or any pack if all were used. O(n), about once in n/2 opens.
    fn make_room(open: &mut HashMap<u32, OpenPackFile>) {
        let before = open.len();
        open.retain(|_, kept| kept.used.swap(false, Ordering::Relaxed));
        if open.len() == before {
            let mut nth = 0;
            open.retain(|_, _| {
                nth += 1;
                nth % 2 == 0
            });
        }
    }
}

/// A quarter of the process's descriptors, and as many packs as a database of 2 GiB has.
fn open_count_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).clamp(1, OPEN_COUNT_MAX)
}

const OPEN_COUNT_MAX: usize = 4096;
