//! A database as a directory: made, opened for reading or writing, swept, checked.

use std::path::Path;

use vouch_tree::{HostId, Iv};

use crate::disk::{Disk, SystemDisk};
use crate::layout::Layout;
use crate::lock::WriterLock;
use crate::manifest::Manifest;
use crate::writer::Orphans;
use crate::{Error, Result, Snapshot, WriteOptions, Writer};

/// A published tree's directory on disk.
#[derive(Debug)]
pub struct Database;

impl Database {
    /// Whether there is a database.
    pub fn exists(path: &Path) -> bool {
        Layout::new(path).manifest().exists()
    }

    /// Makes an empty database; the directory may exist. Killed in between it can be made again.
    ///
    /// # Errors
    /// [`Error::Exists`] when there is one.
    pub fn create(path: &Path, hostid: HostId, iv: Iv) -> Result<()> {
        Self::create_on(&SystemDisk, path, hostid, iv)
    }

    /// [`Database::create`] on a disk of the caller's.
    pub fn create_on(disk: &dyn Disk, path: &Path, hostid: HostId, iv: Iv) -> Result<()> {
        let layout = Layout::new(path);
        disk.create_dir(path).map_err(Error::io("create", path))?;
        let _lock = WriterLock::take(&layout, std::time::Duration::ZERO)?;
        if Self::exists(path) {
            return Err(Error::Exists { path: path.to_owned() });
        }
        for dir in [layout.packs(), layout.index()] {
            disk.create_dir(&dir).map_err(Error::io("create", &dir))?;
        }
        if layout.manifest_next().exists() {
            disk.remove(&layout.manifest_next()).map_err(Error::io("remove", &layout.manifest_next()))?;
        }
        Manifest::new(hostid, iv).write(&layout, disk)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        disk.sync_dir(parent).map_err(Error::io("sync", parent))
    }

    /// Opens for reading.
    pub fn open_read(path: &Path) -> Result<Snapshot> {
        Snapshot::open(path)
    }

    /// Opens for writing: takes the lock, and takes over what a killed writer had stored.
    pub fn open_write(path: &Path, options: WriteOptions) -> Result<Writer> {
        Writer::open(path, &options, Orphans::Adopt)
    }
}
