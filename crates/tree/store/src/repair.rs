//! The hash of a frame is its handle, so packs suffice to rebuild the index.

use std::path::Path;
use std::time::Duration;

use crate::garbage::{Garbage, now_s};
use crate::index::{Entry, PackPosition, Run, merge};
use crate::layout::{Layout, parse_segment_name, segment_path};
use crate::lock::WriterLock;
use crate::manifest::{Manifest, PackMeta, SegmentMeta};
use crate::pack::{PackScan, Scanned};
use crate::segment::{Segment, SegmentWriter};
use crate::view::{finish_commit, read_manifest};
use crate::{CollectOptions, Database, Error, Progress, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repaired {
    /// Frames in the index now, with uncollected garbage.
    pub frames: u64,
    pub bytes: u64,
}

impl Database {
    /// Ignores the old index. Collect afterwards: the new index has dropped frames whose packs
    /// still exist.
    ///
    /// O(bytes of all packs), one core; about 100 MB of memory.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`]: incomplete manifest or pack; nothing is changed.
    pub fn repair(path: &Path, options: &CollectOptions<'_>) -> Result<Repaired> {
        let layout = Layout::open(path)?;
        if !layout.refresh(Duration::ZERO)? {
            return Err(Error::NotFound { path: path.to_owned() });
        }
        let _lock = WriterLock::take(&layout, options.lock_wait)?;
        layout.refresh(Duration::ZERO)?;
        let disk = layout.disk(&options.disk);
        if layout.bucket().is_none() {
            finish_commit(&layout, &*disk)?;
        }
        let (manifest, _) = read_manifest(&layout)?;
        let next_segment = first_free_segment(&layout)?.max(manifest.next_segment);
        let mut rebuild = Rebuild {
            layout: &layout,
            options,
            disk: &*disk,
            manifest,
            next_segment,
            found: Vec::new(),
            segments: Vec::new(),
        };
        let built = rebuild.run();
        if built.is_err() {
            rebuild
                .segments
                .iter()
                .for_each(|segment| drop(disk.remove(&layout.segment(segment.id()))));
        }
        built
    }
}

struct Rebuild<'a> {
    layout: &'a Layout,
    options: &'a CollectOptions<'a>,
    disk: &'a dyn crate::disk::Disk,
    manifest: Manifest,
    next_segment: u32,
    found: Vec<Entry>,
    segments: Vec<Segment>,
}

impl Rebuild<'_> {
    fn run(&mut self) -> Result<Repaired> {
        let (packs, mut bytes) = (self.manifest.packs.clone(), 0);
        let total = packs.iter().map(|pack| pack.len).sum();
        for pack in &packs {
            self.scan(pack)?;
            bytes += pack.len;
            if let Some(progress) = self.options.progress {
                progress(Progress { stage: "hashing", done: bytes, total: Some(total) });
            }
        }
        self.store_found()?;
        self.merge_all()?;
        self.commit()?;
        Ok(Repaired {
            frames: self.segments.iter().map(|segment| segment.len() as u64).sum(),
            bytes,
        })
    }

    fn scan(&mut self, pack: &PackMeta) -> Result<()> {
        let path = self.layout.fresh_pack(pack.class, pack.id)?;
        let mut scan = PackScan::open(&path, pack.class, &self.manifest.iv, pack.len)?
            .ok_or_else(|| Error::damaged(&path, "not a pack of this database"))?;
        loop {
            match scan.next()? {
                Scanned::Record { offset, handle, kind, frame } => {
                    let place =
                        PackPosition { pack: pack.id, offset, len: frame.len() as u32, kind };
                    self.found.push(Entry { handle, place });
                }
                Scanned::End => return Ok(()),
                Scanned::Torn => {
                    let what = format!(
                        "the pack is complete only up to byte {} of {}",
                        scan.whole_len(),
                        pack.len
                    );
                    return Err(Error::damaged(&path, what));
                }
            }
            if self.found.len() >= FOUND_COUNT_MAX {
                self.store_found()?;
            }
        }
    }

    fn store_found(&mut self) -> Result<()> {
        let mut found = std::mem::take(&mut self.found);
        // Stable: equal handles stay in order.
        found.sort_by_key(|entry| entry.handle);
        found.reverse();
        found.dedup_by_key(|entry| entry.handle);
        found.reverse();
        self.write(&[Run::Fresh(&found)]).map(|segment| self.segments.extend(segment))
    }

    fn merge_all(&mut self) -> Result<()> {
        if self.segments.len() < 2 {
            return Ok(());
        }
        let parts = std::mem::take(&mut self.segments);
        let runs: Vec<Run<'_>> = parts.iter().map(Run::Segment).collect();
        let merged = self.write(&runs);
        let removed = parts
            .iter()
            .map(|part| self.layout.segment(part.id()))
            .map(|path| self.disk.remove(&path));
        removed.for_each(drop);
        self.segments.extend(merged?);
        Ok(())
    }

    fn write(&mut self, runs: &[Run<'_>]) -> Result<Option<Segment>> {
        let id = self.next_segment;
        self.next_segment = id.checked_add(1).ok_or(Error::Limit {
            what: "segments",
            found: id.into(),
            max: id.into(),
        })?;
        write_segment(self.layout, self.disk, id, runs)
    }

    /// The index is durable before its manifest.
    fn commit(&mut self) -> Result<()> {
        let (layout, disk) = (self.layout, self.disk);
        disk.sync_dir(&layout.index()).map_err(Error::io("sync", &layout.index()))?;
        let metas = self
            .segments
            .iter()
            .map(|segment| SegmentMeta { id: segment.id(), count: segment.len() as u64 });
        let old = std::mem::replace(&mut self.manifest.segments, metas.collect());
        self.manifest.generation += 1;
        self.manifest.next_segment = self.next_segment;
        if layout.bucket().is_none() {
            let recorded = Garbage::read(layout)?;
            let replaced = old.iter().map(|meta| segment_path(meta.id));
            recorded.next(recorded.names().chain(replaced), now_s()).write(layout, disk)?;
        }
        self.manifest.write(layout, disk, false)?;
        if layout.bucket().is_some() {
            old.iter().for_each(|meta| drop(disk.remove(&layout.segment(meta.id))));
        }
        Ok(())
    }
}

fn write_segment(
    layout: &Layout,
    disk: &dyn crate::disk::Disk,
    id: u32,
    runs: &[Run<'_>],
) -> Result<Option<Segment>> {
    let path = layout.segment(id);
    let mut out = SegmentWriter::create(disk, &path)?;
    merge(runs, &mut out, |_, _, _| Ok(true))?;
    if out.count() == 0 {
        disk.remove(&path).map_err(Error::io("remove", &path))?;
        return Ok(None);
    }
    out.finish()?.sync().map_err(Error::io("sync", &path))?;
    Segment::open(&path, id).map(Some)
}

fn first_free_segment(layout: &Layout) -> Result<u32> {
    let dir = layout.index();
    let names = || {
        std::fs::read_dir(&dir)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<std::io::Result<Vec<_>>>()
    };
    let names = names().map_err(Error::io("list", &dir))?;
    let used = names.iter().filter_map(|name| parse_segment_name(name.to_str()?));
    Ok(used.max().map_or(0, |id| id.saturating_add(1)))
}

/// 56 bytes each, before they go to a segment.
const FOUND_COUNT_MAX: usize = 1 << 20;
