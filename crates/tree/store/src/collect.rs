//! Frees data that no kept revision needs. Marks without the lock, then newer data with it; a
//! writer waits only for the sweep. Frames of a publication in progress and signed fsinfos stay.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vouch_tree::FrameKind;

use crate::commit::Sweep;
use crate::disk::{Disk, SystemDisk};
use crate::frames::{Progress, ProgressFn};
use crate::index::{Entry, Index, Position};
use crate::layout::{Layout, PackClass};
use crate::manifest::{Manifest, PackMeta};
use crate::marking::{Marks, MissingFrame, Walk, for_each_entry};
use crate::pack::{self, PackScan, Scanned};
use crate::pending::Pending;
use crate::view::View;
use crate::writer::{Orphans, WriteOptions, Writer};
use crate::{Database, Error, FileTotals, FrameSource, Result, Snapshot};

pub struct CollectOptions<'a> {
    pub lock_wait: Duration,
    /// Unused files stay this long for readers of an earlier manifest. `None`: 10 minutes in a
    /// directory, 24 hours in a bucket.
    pub grace: Option<Duration>,
    /// Age from which data of an interrupted writer is removed.
    pub unfinished_age_max: Duration,
    /// A pack with more garbage is rewritten.
    pub garbage_percent_max: u64,
    /// Of new packs: see [`WriteOptions`].
    pub pack_len: Option<u32>,
    pub progress: Option<&'a ProgressFn<'a>>,
    pub disk: Arc<dyn Disk>,
}

impl Default for CollectOptions<'_> {
    fn default() -> Self {
        let disk = Arc::new(SystemDisk);
        let (lock_wait, unfinished_age_max) = (Duration::ZERO, Duration::ZERO);
        Self {
            lock_wait,
            unfinished_age_max,
            grace: None,
            garbage_percent_max: 30,
            pack_len: None,
            progress: None,
            disk,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    pub live_frames: u64,
    pub dropped_frames: u64,
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub moved_bytes: u64,
    pub packs_before: u64,
    pub packs_after: u64,
    /// Packs and segments whose grace period is over.
    pub removed_files: u64,
    /// Those that wait for a later collection.
    pub waiting_files: u64,
    /// Packs of an interrupted writer that were old enough.
    pub unfinished_removed: FileTotals,
    /// Those that stay for its next run.
    pub unfinished_waiting: FileTotals,
}

impl Database {
    /// Also removes old data of unfinished writers, and joins small packs. Needs free space for a
    /// new index (44 bytes a frame) and for moved frames; without a grace period, for 1 GiB of them
    /// and a pack. Memory: one bit a frame for marking, and a writer's own.
    pub fn collect(path: &Path, options: CollectOptions<'_>) -> Result<Collected> {
        let snapshot = Snapshot::open(path)?;
        let view = snapshot.view();
        // May come from a concurrent collection; retried with the lock.
        let early = Marks::new(view.index());
        let early_done = mark(
            snapshot.layout(),
            view.manifest(),
            view.index(),
            &snapshot,
            &early,
            options.progress,
        );
        let write = WriteOptions {
            lock_wait: options.lock_wait,
            disk: options.disk.clone(),
            pack_len: options.pack_len,
            ..WriteOptions::default()
        };
        let writer = Writer::open(path, &write, Orphans::Drop(options.unfinished_age_max))?;
        let marks = early_done.is_ok().then_some((&*view, &early));
        Collection::new(&writer, marks, &options)?.run()
    }
}

fn mark(
    layout: &Layout,
    manifest: &Manifest,
    index: &Index,
    source: &dyn FrameSource,
    marks: &Marks,
    progress: Option<&ProgressFn<'_>>,
) -> Result<()> {
    let mut walk = Walk { index, source, iv: manifest.iv, marks, progress, marked: 0 };
    let kept = manifest.revisions.iter().map(|revision| (revision.number, revision.fsinfo));
    // One that waits for witnesses, and the one that comes with it.
    let pending = Pending::waiting(layout, manifest)?.into_iter().flat_map(|pending| {
        let earlier = pending.earlier.map(|earlier| (earlier.number, earlier.fsinfo));
        earlier.into_iter().chain([(pending.revision.number, pending.revision.fsinfo)])
    });
    for (number, fsinfo) in kept.chain(pending) {
        walk.mark(&fsinfo, |MissingFrame { handle, why, .. }| {
            let what = format!("revision {number} needs frame {handle}, which is {why}");
            Err(Error::damaged(layout.root(), what))
        })?;
    }
    for handle in &manifest.companions {
        if let Some(position) = index.position(handle)? {
            marks.set(position);
        }
    }
    Ok(())
}

struct Collection<'a> {
    writer: &'a Writer,
    options: &'a CollectOptions<'a>,
    index: Index,
    marks: Marks,
    packs: Vec<PackMeta>,
    live: HashMap<u32, u64>,
    done: Collected,
}

impl<'a> Collection<'a> {
    fn new(
        writer: &'a Writer,
        early: Option<(&View, &Marks)>,
        options: &'a CollectOptions<'a>,
    ) -> Result<Self> {
        let manifest = writer.committed.lock().clone();
        let index = writer.index.read().index.clone();
        let marks = match early {
            Some((view, marks)) => marks.transfer(view.index(), &index)?,
            None => Marks::new(&index),
        };
        let layout = &writer.file_factory.layout;
        mark(layout, &manifest, &index, writer, &marks, options.progress)?;
        let mut new = Self {
            writer,
            options,
            index,
            marks,
            packs: manifest.packs,
            live: HashMap::new(),
            done: Collected::default(),
        };
        new.count_live_bytes()?;
        Ok(new)
    }

    fn count_live_bytes(&mut self) -> Result<()> {
        let (mut live, mut done) = (HashMap::new(), Collected::default());
        for_each_entry(&self.index, |position, entry| {
            if self.retains(position, entry)? {
                done.live_frames += 1;
                *live.entry(entry.place.pack).or_default() +=
                    u64::from(pack::record_len(entry.place.len));
            } else {
                done.dropped_frames += 1;
            }
            Ok(())
        })?;
        done.packs_before = self.packs.len() as u64;
        done.bytes_before = self.packs.iter().map(|pack| pack.len).sum();
        (self.live, self.done) = (live, done);
        Ok(())
    }

    fn retains(&self, position: Position, entry: &Entry) -> Result<bool> {
        let is_history = || {
            Ok(entry.place.kind == FrameKind::Fsinfo
                && self.index.position(&entry.handle)? == Some(position))
        };
        if self.marks.has(position) { Ok(true) } else { is_history() }
    }

    fn live_len(&self, pack: &PackMeta) -> u64 {
        self.live.get(&pack.id).copied().unwrap_or(0)
    }

    fn run(mut self) -> Result<Collected> {
        // First, as a full disk has no room for a new index.
        self.free_space_early()?;
        self.drop_dead()?;
        self.free_space_early()?;
        self.rewrite_wasteful()?;
        let expired = self.writer.remove_expired(self.grace())?;
        self.done.removed_files += expired.removed_files;
        self.done.waiting_files = expired.waiting_files;
        let unfinished = self.writer.unfinished;
        (self.done.unfinished_removed, self.done.unfinished_waiting) =
            (unfinished.removed, unfinished.waiting);
        let manifest = self.writer.committed.lock();
        self.done.packs_after = manifest.packs.len() as u64;
        self.done.bytes_after = manifest.packs.iter().map(|pack| pack.len).sum();
        Ok(self.done)
    }

    fn drop_dead(&self) -> Result<()> {
        let dead: HashSet<u32> =
            self.packs.iter().filter(|pack| self.live_len(pack) == 0).map(|pack| pack.id).collect();
        if dead.is_empty() && self.done.dropped_frames == 0 {
            return Ok(());
        }
        let retains = |position, entry: &Entry| self.retains(position, entry);
        self.next_generation(&Sweep { retains: Some(&retains), packs: dead })
    }

    /// Also joins small packs. Takes some at a time.
    fn rewrite_wasteful(&mut self) -> Result<()> {
        let wasteful = self.wasteful();
        let total = wasteful.iter().map(|pack| self.live_len(pack)).sum();
        let mut gone = HashSet::new();
        let mut pending = 0;
        for pack in wasteful {
            let moved = self.move_live(&pack)?;
            gone.insert(pack.id);
            pending += moved;
            self.done.moved_bytes += moved;
            if let Some(progress) = self.options.progress {
                progress(Progress {
                    stage: "moving",
                    done: self.done.moved_bytes,
                    total: Some(total),
                });
            }
            if pending >= MOVED_LEN_MAX {
                self.next_generation(&Sweep { retains: None, packs: std::mem::take(&mut gone) })?;
                self.free_space_early()?;
                pending = 0;
            }
        }
        if gone.is_empty() {
            Ok(())
        } else {
            self.next_generation(&Sweep { retains: None, packs: gone })
        }
    }

    /// A bucket is cleaned once: its objects have to be listed.
    fn free_space_early(&mut self) -> Result<()> {
        if self.writer.file_factory.layout.bucket().is_none() {
            self.done.removed_files +=
                self.writer.remove_expired_files(self.grace())?.removed_files;
        }
        Ok(())
    }

    fn grace(&self) -> Duration {
        let is_bucket = self.writer.file_factory.layout.bucket().is_some();
        self.options.grace.unwrap_or(if is_bucket { BUCKET_GRACE } else { DIRECTORY_GRACE })
    }

    fn wasteful(&self) -> Vec<PackMeta> {
        let pack_len = u64::from(self.writer.file_factory.pack_len());
        let is_small = |pack: &PackMeta| pack.len < pack_len / SMALL_PART;
        let live = |pack: &&PackMeta| self.live_len(pack) > 0;
        let gather = |class| {
            self.packs.iter().filter(live).filter(|p| p.class == class && is_small(p)).count()
                >= SMALL_COUNT_MIN
        };
        let gathered: Vec<PackClass> =
            PackClass::BOTH.into_iter().filter(|&class| gather(class)).collect();
        let wasteful = |pack: &&PackMeta| {
            let garbage = pack.len.saturating_sub(pack::HEADER_LEN as u64 + self.live_len(pack));
            garbage * 100 > pack.len * self.options.garbage_percent_max
                || (is_small(pack) && gathered.contains(&pack.class))
        };
        self.packs.iter().filter(live).filter(wasteful).copied().collect()
    }

    fn move_live(&self, pack: &PackMeta) -> Result<u64> {
        let path = self.writer.file_factory.layout.readable_pack(pack.class, pack.id)?;
        let mut scan = PackScan::open(&path, pack.class, &self.writer.file_factory.iv, pack.len)?
            .ok_or_else(|| Error::damaged(&path, "not a pack of this database"))?;
        let mut moved = 0;
        while let Scanned::Record { offset, handle, frame, .. } = scan.next()? {
            let place = self.writer.index.read().index.find(&handle)?;
            if place.is_some_and(|place| (place.pack, place.offset) == (pack.id, offset)) {
                self.writer.append_moved(&handle, frame)?;
                moved += u64::from(pack::record_len(frame.len() as u32));
            }
        }
        if moved != self.live_len(pack) {
            let what =
                format!("found {moved} bytes of live frames instead of {}", self.live_len(pack));
            return Err(Error::damaged(&path, what));
        }
        Ok(moved)
    }

    fn next_generation(&self, sweep: &Sweep<'_>) -> Result<()> {
        let mut committed = self.writer.committed.lock();
        let next = committed.clone();
        self.writer.write_generation(&mut committed, next, Some(sweep))
    }
}

/// Default validity of a revision: readers follow an older one no longer.
const BUCKET_GRACE: Duration = Duration::from_secs(24 * 3600);
/// Caches have an earlier manifest for a minute.
const DIRECTORY_GRACE: Duration = Duration::from_secs(10 * 60);
/// Moved before old packs are dropped: bounds the extra space if there is no grace period.
const MOVED_LEN_MAX: u64 = 1 << 30;
/// Packs below this part of the pack length are small. While a database grows, each frame moves once
/// for each time that the pack length has grown fourfold.
const SMALL_PART: u64 = 4;
/// Small packs of a class that are joined.
const SMALL_COUNT_MIN: usize = 4;
