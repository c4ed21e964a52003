//! A parameter: tests cut the power between any two operations. After [`DiskFile::sync`] a file's
//! bytes survive a power failure; after [`Disk::sync_dir`], the names in a directory. A rename is
//! atomic.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, OFlags};

pub trait Disk: Send + Sync + fmt::Debug {
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

pub trait DiskFile: Send + Sync + fmt::Debug {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()>;

    fn sync(&self) -> io::Result<()>;

    /// Nothing more is appended: a slow sync may begin. [`DiskFile::sync`] still follows.
    fn start_sync(&self) {}
}

/// Root may write another user's database, and a link there must not lead elsewhere.
pub(crate) const NO_FOLLOW: i32 = OFlags::NOFOLLOW.bits().cast_signed();

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().append(true).create_new(true).open(path)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().append(true).custom_flags(NO_FOLLOW).open(path)?))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        OpenOptions::new().write(true).custom_flags(NO_FOLLOW).open(path)?.set_len(len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut left = &mut slices[..];
        let mut file = self;
        while !left.is_empty() {
            match file.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => IoSlice::advance_slices(&mut left, n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    /// Linux begins to write the dirty pages out, and keeps them (mm/fadvise.c, since 2.6).
    fn start_sync(&self) {
        // Only a hint: an error shows in the sync that follows.
        let _ = rustix::fs::fadvise(self, 0, None, Advice::DontNeed);
    }
}
