//! Changes of files, as a parameter: tests simulate a power cut between any two.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The second implementation loses power at chosen moments.
pub trait Disk: Send + Sync {
    /// The file must not exist yet. `secret` restricts access to the owner.
    fn create(&self, path: &Path, secret: bool) -> io::Result<Box<dyn DiskFile>>;
    /// For writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Atomic; replaces `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes names durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks a directory until the value is dropped or the process ends. `WouldBlock`: another
    /// process holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Lock>;
}

/// Unlocks when dropped.
pub type Lock = Box<dyn Send>;

/// An open file.
pub trait DiskFile: Send {
    /// Writes all bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes bytes durable.
    fn sync(&self) -> io::Result<()>;
    /// Truncates or extends with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&self, path: &Path, secret: bool) -> io::Result<Box<dyn DiskFile>> {
        let mode = if secret { 0o600 } else { 0o640 };
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().write(true).open(path)?))
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

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        let directory = File::open(path)?;
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(directory))
    }
}

impl DiskFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
}
