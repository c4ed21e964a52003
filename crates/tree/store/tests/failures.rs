//! Full or failing disk from any step on: the committed revision stays, the error says so.

mod fixtures;
mod power_cut;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fixtures::{leaf, revision, try_revision};
use power_cut::QuietDisk;
use vouch_tree_store::disk::{Disk, DiskFile};
use vouch_tree_store::{
    CollectOptions, Database, Error, FrameSink, FrameSource, Result, WriteOptions,
};

#[derive(Debug, Clone)]
struct FullDisk {
    left: Arc<AtomicU64>,
    kind: io::ErrorKind,
}

impl FullDisk {
    fn after(operations: u64, kind: io::ErrorKind) -> Self {
        Self { left: Arc::new(AtomicU64::new(operations)), kind }
    }

    fn step(&self) -> io::Result<()> {
        let spent = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| self.kind.into())
    }
}

impl Disk for FullDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        QuietDisk.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.step()?;
        Ok(Arc::new(FullFile { disk: self.clone(), file: QuietDisk.create(path)? }))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.step()?;
        Ok(Arc::new(FullFile { disk: self.clone(), file: QuietDisk.reopen(path)? }))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.step()?;
        QuietDisk.truncate(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        QuietDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // A full disk lets files go.
        if self.kind != io::ErrorKind::StorageFull {
            self.step()?;
        }
        QuietDisk.remove(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.step()
    }
}

#[derive(Debug)]
struct FullFile {
    disk: FullDisk,
    file: Arc<dyn DiskFile>,
}

impl DiskFile for FullFile {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.disk.step().inspect_err(|_| {
            let all = parts.concat();
            let _ = self.file.append(&[&all[..all.len() / 2]]);
        })?;
        self.file.append(parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.step()
    }
}

fn publish(path: &Path, disk: &FullDisk) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let small = WriteOptions {
        disk: disk.clone(),
        pack_len: Some(12_000),
        fresh_count_max: 20,
        ..Default::default()
    };
    let writer = Database::open_write(path, small)?;
    let put = try_revision(&writer, 2, 10..60).and_then(|mut new| {
        new.keep = Some(1);
        writer.commit(new)
    });
    if put.is_err() {
        let (handle, frame) = leaf(10_000);
        assert!(
            matches!(writer.put(&handle, &frame), Err(Error::Broken { .. })),
            "a writer whose write failed writes on"
        );
        assert!(matches!(writer.checkpoint(), Err(Error::Broken { .. })));
    }
    put?;
    drop(writer);
    Database::collect(path, CollectOptions { disk, pack_len: Some(12_000), ..Default::default() })
        .map(drop)
}

#[test]
fn full_disk_at_any_step_keeps_committed_revision() {
    for operations in 0.. {
        let dir = fixtures::fast_dir();
        let path = dir.path().join("db");
        Database::create_on(&QuietDisk, &path, fixtures::HOSTID, vouch_tree_store::conformance::IV)
            .unwrap();
        let writer = Database::open_write(
            &path,
            WriteOptions { disk: Arc::new(QuietDisk), ..Default::default() },
        )
        .unwrap();
        writer.commit(revision(&writer, 1, 0..30)).unwrap();
        drop(writer);
        let kind =
            if operations % 2 == 0 { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
        let done = publish(&path, &FullDisk::after(operations, kind));
        match &done {
            Err(error @ Error::NoSpace { .. }) => {
                assert!(error.to_string().contains("stays in force"), "{error}")
            }
            Err(Error::Io { .. }) | Ok(()) => {}
            Err(other) => panic!("after {operations} operations: {other}"),
        }
        let reader = Database::open_read(&path).unwrap();
        let leaves = if reader.revisions().last().unwrap().number == 1 { 0..30 } else { 10..60 };
        leaves
            .map(leaf)
            .for_each(|(handle, frame)| assert_eq!(reader.get(&handle).unwrap(), Some(frame)));
        assert!(Database::verify(&path, None).unwrap().is_sound(), "after {operations} operations");
        let writer = Database::open_write(
            &path,
            WriteOptions { disk: Arc::new(QuietDisk), ..Default::default() },
        )
        .unwrap();
        if let Err(Error::NoSpace { .. }) = &done {
            assert_eq!(
                writer.adopted().new_frames,
                0,
                "after {operations} operations: a full disk gets back what was stored"
            );
        }
        writer.commit(revision(&writer, 3, 0..70)).unwrap();
        assert!(
            Database::verify(&path, None).unwrap().is_sound(),
            "after {operations} operations and going on"
        );
        if done.is_ok() && operations > 100 {
            return;
        }
    }
}
