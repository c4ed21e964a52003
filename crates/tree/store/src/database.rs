use std::io;
use std::path::Path;
use std::time::Duration;

use vouch_tree::{HostId, Iv};

use crate::bucket::BucketDatabase;
use crate::disk::{Disk, SystemDisk};
use crate::layout::Layout;
use crate::lock::WriterLock;
use crate::manifest::Manifest;
use crate::view::sync_parent;
use crate::writer::Orphans;
use crate::{Error, Result, Snapshot, WriteOptions, Writer};

#[derive(Debug)]
pub struct Database;

impl Database {
    pub fn exists(path: &Path) -> bool {
        Layout::open(path).and_then(|layout| layout.refresh(Duration::ZERO)).unwrap_or(false)
    }

    /// The directory must be missing or empty. An interrupted creation can be repeated.
    pub fn create(path: &Path, hostid: HostId, iv: Iv) -> Result<()> {
        Self::create_on(&SystemDisk, path, hostid, iv)
    }

    /// Waits for another process that creates it.
    pub fn ensure(
        disk: &dyn Disk,
        path: &Path,
        hostid: HostId,
        iv: Iv,
        lock_wait: Duration,
    ) -> Result<()> {
        if Self::exists(path) {
            return Ok(());
        }
        match Self::make(disk, path, hostid, iv, lock_wait) {
            Err(Error::Exists { .. }) => Ok(()),
            made => made,
        }
    }

    pub fn create_on(disk: &dyn Disk, path: &Path, hostid: HostId, iv: Iv) -> Result<()> {
        Self::make(disk, path, hostid, iv, Duration::ZERO)
    }

    fn make(
        disk: &dyn Disk,
        path: &Path,
        hostid: HostId,
        iv: Iv,
        lock_wait: Duration,
    ) -> Result<()> {
        let layout = Layout::open(path)?;
        if let Some(bucket) = layout.bucket() {
            return create_in(&layout, &**bucket, hostid, iv, lock_wait);
        }
        disk.create_dir(path).map_err(Error::io("create", path))?;
        check_empty(&layout)?;
        let _lock = WriterLock::take(&layout, lock_wait)?;
        if Self::exists(path) {
            return Err(Error::Exists { path: path.to_owned() });
        }
        for dir in [layout.packs(), layout.index()] {
            disk.create_dir(&dir).map_err(Error::io("create", &dir))?;
        }
        if layout.manifest_next().exists() {
            disk.remove(&layout.manifest_next())
                .map_err(Error::io("remove", &layout.manifest_next()))?;
        }
        // Final: the directories are durable before the manifest makes this a database.
        Manifest::new(hostid, iv).write(&layout, disk, true)?;
        sync_parent(path, disk)
    }

    pub fn open_read(path: &Path) -> Result<Snapshot> {
        Snapshot::open(path)
    }

    /// Takes the lock and recovers a killed writer's data.
    pub fn open_write(path: &Path, options: WriteOptions) -> Result<Writer> {
        let orphans = if options.adopt { Orphans::Adopt } else { Orphans::Drop(Duration::MAX) };
        Writer::open(path, &options, orphans)
    }
}

fn create_in(
    layout: &Layout,
    bucket: &dyn BucketDatabase,
    hostid: HostId,
    iv: Iv,
    lock_wait: Duration,
) -> Result<()> {
    let failed = || Error::io("create", layout.name());
    let exists = || Error::Exists { path: layout.name().to_owned() };
    if layout.refresh(Duration::ZERO)? {
        return Err(exists());
    }
    if let Some(found) = bucket.foreign_object().map_err(failed())? {
        return Err(Error::NotEmpty { path: layout.name().to_owned(), found: found.into() });
    }
    let _lock = WriterLock::take(layout, lock_wait)?;
    if layout.refresh(Duration::ZERO)? {
        return Err(exists());
    }
    let disk = bucket.disk();
    if layout.manifest_next().exists() {
        disk.remove(&layout.manifest_next()).map_err(failed())?;
    }
    Manifest::new(hostid, iv).write(layout, &*disk, false)
}

/// Accepts the remains of a killed [`Database::create`]. Packs without a manifest may be the rest
/// of a database.
fn check_empty(layout: &Layout) -> Result<()> {
    let root = layout.root();
    let list = |dir: &Path| {
        std::fs::read_dir(dir)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(Error::io("list", dir))
    };
    for entry in list(root)? {
        let found = entry.path();
        let is_ours = if found == layout.lock() {
            WriterLock::is_ours(&found)
        } else if found == layout.packs()
            || found == layout.index()
            || entry.file_name() == "lost+found"
        {
            entry.file_type().is_ok_and(|kind| kind.is_dir())
                && list(&found).is_ok_and(|below| below.is_empty())
        } else {
            found == layout.manifest() || found == layout.manifest_next()
        };
        // Another process may have finished; the lock decides.
        if !is_ours && !Database::exists(root) {
            return Err(Error::NotEmpty { path: root.to_owned(), found: entry.file_name().into() });
        }
    }
    Ok(())
}
