//! Files of the state directory and of the audit trail that several heads share. They are written
//! only while the lease holds, and have no file lock: the lock of a dead machine can stay for
//! minutes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend;
use vouch_audit::trail::{Disk, DiskFile, Lock, SystemDisk};
use vouch_vfs_posix::open_database_file;

use super::serving_right::ServingRight;

fn check(right: &ServingRight) -> io::Result<()> {
    if right.is_valid() {
        Ok(())
    } else {
        Err(io::Error::other("the lease of the shared state directory has ended"))
    }
}

/// A database of `redb`.
#[derive(Debug)]
pub(crate) struct GuardedFile {
    file: File,
    right: Arc<ServingRight>,
}

impl GuardedFile {
    pub(crate) fn open(path: &Path, right: Arc<ServingRight>) -> io::Result<Self> {
        Ok(GuardedFile { file: open_database_file(path)?, right })
    }
}

impl StorageBackend for GuardedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check(&self.right)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        check(&self.right)?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check(&self.right)?;
        self.file.write_all_at(data, offset)
    }
}

/// The disk of an audit trail.
pub(crate) struct GuardedDisk(pub(crate) Arc<ServingRight>);

struct GuardedTrailFile(Box<dyn DiskFile>, Arc<ServingRight>);

impl GuardedDisk {
    fn guard(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(GuardedTrailFile(file, self.0.clone()))
    }
}

impl Disk for GuardedDisk {
    fn create(&self, path: &Path, secret: bool) -> io::Result<Box<dyn DiskFile>> {
        check(&self.0)?;
        Ok(self.guard(SystemDisk.create(path, secret)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.guard(SystemDisk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        check(&self.0)?;
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        check(&self.0)?;
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.sync_dir(path)
    }

    fn lock(&self, _: &Path) -> io::Result<Lock> {
        Ok(Box::new(()))
    }
}

impl DiskFile for GuardedTrailFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        check(&self.1)?;
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        check(&self.1)?;
        self.0.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check(&self.1)?;
        self.0.set_len(len)
    }
}
