//! Adopts packs that no manifest names, removes other files. Trusts nothing: the hash of a frame is
//! its handle.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use crate::bucket::BucketDatabase;
use crate::garbage::{Garbage, now_s};
use crate::layout::{
    PackClass, pack_name, pack_path, parse_pack_name, parse_segment_name, segment_name,
    segment_path,
};
use crate::manifest::PackMeta;
use crate::pack::{PACK_LEN_LIMIT, PackScan, Scanned};
use crate::view::read_manifest;
use crate::writer::{Orphans, Writer};
use crate::{Error, FrameSink as _, PutCounts, Result};

/// Packs and segments that a writer has stored and not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileTotals {
    pub count: u64,
    pub len: u64,
}

impl FileTotals {
    fn add(&mut self, path: &Path) {
        self.count += 1;
        self.len += std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unfinished {
    pub(crate) removed: FileTotals,
    pub(crate) waiting: FileTotals,
}

impl Writer {
    /// Files that no manifest names, on the disk or in memory: a failed commit may have replaced it.
    pub(crate) fn remove_unfinished(&self) -> Result<FileTotals> {
        let layout = &self.file_factory.layout;
        let mut named = self.committed.lock().paths();
        if layout.bucket().is_none() {
            named.extend(read_manifest(layout)?.0.paths());
        }
        let garbage = Garbage::read(layout)?;
        let packs = names(&layout.packs())?
            .into_iter()
            .filter_map(|name| parse_pack_name(&name))
            .map(|(class, id)| pack_path(class, id));
        let segments = names(&layout.index())?
            .into_iter()
            .filter_map(|name| parse_segment_name(&name))
            .map(segment_path);
        let mut removed = FileTotals::default();
        for name in
            packs.chain(segments).filter(|name| !named.contains(name) && !garbage.lists(name))
        {
            let path = layout.root().join(name);
            removed.add(&path);
            self.remove(&path)?;
        }
        for leftover in [layout.manifest_next(), layout.garbage_next()] {
            if leftover.exists() {
                self.remove(&leftover)?;
            }
        }
        Ok(removed)
    }

    pub(crate) fn adopt_orphans(&self, orphans: Orphans) -> Result<(PutCounts, Unfinished)> {
        let layout = &self.file_factory.layout;
        for leftover in [layout.manifest_next(), layout.garbage_next()] {
            if leftover.exists() {
                self.remove(&leftover)?;
            }
        }
        if let Some(bucket) = layout.bucket() {
            self.remove_unnamed_segments(&Garbage::default())?;
            return self.adopt_bucket_orphans(&**bucket, orphans);
        }
        let recorded = Garbage::read(layout)?;
        let mut garbage = self.remove_unnamed_segments(&recorded)?;
        let (mut adopted, mut unfinished) = (PutCounts::default(), Unfinished::default());
        for (id, class) in self.unnamed_packs()? {
            let path = layout.pack(class, id);
            match orphans {
                _ if recorded.lists(&pack_path(class, id)) => garbage.push(pack_path(class, id)),
                Orphans::Adopt => self.adopt(class, id, &mut adopted)?,
                Orphans::Drop(age) if is_older(&path, age) => {
                    unfinished.removed.add(&path);
                    self.remove(&path)?;
                }
                Orphans::Drop(_) => unfinished.waiting.add(&path),
            }
        }
        *self.garbage.lock() = recorded.next(garbage, now_s());
        self.remove_expired_files(GARBAGE_AGE_MAX)?;
        if adopted.new_frames > 0 {
            tracing::info!(
                frames = adopted.new_frames,
                bytes = adopted.new_bytes,
                "recovered frames that a killed writer had stored"
            );
        }
        Ok((adopted, unfinished))
    }

    /// New numbers come after those of leftover objects, which wait for a collection.
    fn adopt_bucket_orphans(
        &self,
        bucket: &dyn BucketDatabase,
        orphans: Orphans,
    ) -> Result<(PutCounts, Unfinished)> {
        let file_factory = &self.file_factory;
        if self.lock.has_leftovers() {
            self.skip_leftover_numbers(bucket)?;
        }
        let staged: Vec<_> = names(&file_factory.layout.packs())?
            .iter()
            .filter_map(|name| parse_pack_name(name))
            .collect();
        for (_, id) in &staged {
            file_factory
                .next_pack
                .fetch_max(id.saturating_add(1), std::sync::atomic::Ordering::Relaxed);
        }
        let mut unfinished = Unfinished::default();
        for (class, id) in staged {
            let path = file_factory.layout.pack(class, id);
            match orphans {
                Orphans::Adopt => self.store_again(&path, class)?,
                Orphans::Drop(age) if !is_older(&path, age) => {
                    unfinished.waiting.add(&path);
                    continue;
                }
                Orphans::Drop(_) => unfinished.removed.add(&path),
            }
            self.remove(&path)?;
        }
        let adopted = self.counts.take();
        Ok((PutCounts { shared_frames: 0, shared_bytes: 0, ..adopted }, unfinished))
    }

    fn skip_leftover_numbers(&self, bucket: &dyn BucketDatabase) -> Result<()> {
        let file_factory = &self.file_factory;
        let listed = |dir: &str, after: String| {
            bucket.list(dir, &after).map_err(Error::io("list", file_factory.layout.name()))
        };
        let last = |counter: &std::sync::atomic::AtomicU32| {
            counter.load(std::sync::atomic::Ordering::Relaxed).saturating_sub(1)
        };
        for class in PackClass::BOTH {
            for (name, _) in listed("packs", pack_name(class, last(&file_factory.next_pack)))? {
                if let Some((_, id)) = parse_pack_name(&name) {
                    file_factory
                        .next_pack
                        .fetch_max(id.saturating_add(1), std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
        for (name, _) in listed("index", segment_name(last(&file_factory.next_segment)))? {
            if let Some(id) = parse_segment_name(&name) {
                file_factory
                    .next_segment
                    .fetch_max(id.saturating_add(1), std::sync::atomic::Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn store_again(&self, path: &Path, class: PackClass) -> Result<()> {
        let len = std::fs::metadata(path).map_err(Error::io("look at", path))?.len();
        let Some(mut scan) =
            PackScan::open(path, class, &self.file_factory.iv, len.min(PACK_LEN_LIMIT))?
        else {
            return Ok(());
        };
        while let Scanned::Record { handle, frame, .. } = scan.next()? {
            self.put(&handle, frame)?;
        }
        Ok(())
    }

    fn adopt(&self, class: PackClass, id: u32, adopted: &mut PutCounts) -> Result<()> {
        let file_factory = &self.file_factory;
        let path = file_factory.layout.pack(class, id);
        let len = std::fs::metadata(&path).map_err(Error::io("look at", &path))?.len();
        let Some(mut scan) =
            PackScan::open(&path, class, &file_factory.iv, len.min(PACK_LEN_LIMIT))?
        else {
            return self.remove(&path);
        };
        let mut stream = self.streams[class as usize].lock();
        let mut new = 0;
        while let Scanned::Record { offset, handle, kind, frame } = scan.next()? {
            let place =
                crate::index::PackPosition { pack: id, offset, len: frame.len() as u32, kind };
            let index = self.index.read().clone();
            if index.index.contains(&handle)? || stream.fresh.contains_key(&handle) {
                continue;
            }
            stream.fresh.insert(handle, place);
            self.spill_when_full(&mut stream)?;
            new += 1;
            adopted.new_frames += 1;
            adopted.new_bytes += frame.len() as u64;
        }
        if new == 0 {
            drop(stream);
            return self.remove(&path);
        }
        let whole = scan.whole_len();
        if whole < len {
            tracing::info!(path = %path.display(), whole, torn = len - whole, "cutting the torn end of a pack");
            self.break_on_error(
                file_factory.disk.truncate(&path, whole).map_err(Error::io("cut", &path)),
            )?;
        }
        // Syncs at once: the file was read anyway.
        self.break_on_error(
            file_factory
                .disk
                .reopen(&path)
                .and_then(|file| file.sync())
                .map_err(Error::io("sync", &path)),
        )?;
        stream.sealed.push(PackMeta { id, class, len: whole });
        Ok(())
    }

    fn unnamed_packs(&self) -> Result<Vec<(u32, PackClass)>> {
        let layout = &self.file_factory.layout;
        let mut named: HashMap<u32, PackMeta> =
            self.committed.lock().packs.iter().map(|pack| (pack.id, *pack)).collect();
        let mut unnamed = Vec::new();
        for name in names(&layout.packs())? {
            let Some((class, id)) = parse_pack_name(&name) else { continue };
            self.file_factory
                .next_pack
                .fetch_max(id.saturating_add(1), std::sync::atomic::Ordering::Relaxed);
            let path = layout.pack(class, id);
            match named.remove(&id) {
                None => unnamed.push((id, class)),
                Some(meta) => {
                    let len = std::fs::metadata(&path).map_err(Error::io("look at", &path))?.len();
                    if meta.class != class || meta.len != len {
                        return Err(Error::damaged(
                            &path,
                            format!("the pack has {len} bytes instead of {}", meta.len),
                        ));
                    }
                }
            }
        }
        if let Some(missing) = named.values().min_by_key(|pack| pack.id) {
            return Err(Error::damaged(
                &layout.pack(missing.class, missing.id),
                "the pack is missing",
            ));
        }
        unnamed.sort_unstable_by_key(|(id, _)| *id);
        Ok(unnamed)
    }

    /// Except recorded ones, which it returns.
    fn remove_unnamed_segments(&self, recorded: &Garbage) -> Result<Vec<String>> {
        let layout = &self.file_factory.layout;
        let mut garbage = Vec::new();
        let named: HashSet<u32> =
            self.committed.lock().segments.iter().map(|segment| segment.id).collect();
        for name in names(&layout.index())? {
            let Some(id) = parse_segment_name(&name) else { continue };
            self.file_factory
                .next_segment
                .fetch_max(id.saturating_add(1), std::sync::atomic::Ordering::Relaxed);
            if recorded.lists(&segment_path(id)) && !named.contains(&id) {
                garbage.push(segment_path(id));
            } else if !named.contains(&id) {
                self.remove(&layout.segment(id))?;
            }
        }
        Ok(garbage)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.file_factory.disk.remove(path).map_err(Error::io("remove", path))
    }
}

/// For databases without collections.
const GARBAGE_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

fn is_older(path: &Path, age: Duration) -> bool {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    age.is_zero() || written.and_then(|at| at.elapsed().ok()).is_some_and(|since| since >= age)
}

fn names(path: &Path) -> Result<Vec<String>> {
    let list = || {
        std::fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().into_string().ok()))
            .collect::<std::io::Result<Vec<_>>>()
    };
    Ok(list().map_err(Error::io("list", path))?.into_iter().flatten().collect())
}
