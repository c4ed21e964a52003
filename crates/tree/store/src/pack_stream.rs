//! A writer's new frames of one class: the open packs, and records not yet in a segment.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

use vouch_tree::{BlockHandle, FrameKind, Iv};

use crate::disk::{Disk, DiskFile};
use crate::index::{Entry, PackPosition};
use crate::layout::{Layout, PackClass};
use crate::manifest::PackMeta;
use crate::pack;
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct FileFactory {
    pub(crate) layout: Layout,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) iv: Iv,
    pub(crate) pack_len: Option<u32>,
    /// Of all sealed packs.
    pub(crate) packs_len: AtomicU64,
    pub(crate) next_pack: AtomicU32,
    pub(crate) next_segment: AtomicU32,
}

impl FileFactory {
    /// Web caches keep short packs. A large database gets longer ones, which bounds their number.
    pub(crate) fn pack_len(&self) -> u32 {
        self.pack_len.unwrap_or_else(|| pack_len_of(self.packs_len.load(Ordering::Relaxed)))
    }

    pub(crate) fn take_number(&self, counter: &AtomicU32) -> Result<u32> {
        let taken =
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1));
        taken.map_err(|n| Error::Limit {
            what: "files created in this database",
            found: n.into(),
            max: u32::MAX.into(),
        })
    }
}

fn pack_len_of(packs_len: u64) -> u32 {
    let share = u32::try_from(packs_len / PACK_COUNT_WANTED).unwrap_or(u32::MAX);
    share.clamp(pack::PACK_LEN_MIN, pack::PACK_LEN_MAX)
}

#[derive(Debug)]
pub(crate) struct PackStream {
    class: PackClass,
    /// One for each lane.
    open: Vec<Option<OpenPack>>,
    lane_count_max: usize,
    sealed_count: usize,
    /// In the order of their first frame.
    threads: Vec<ThreadId>,
    pub(crate) fresh: HashMap<BlockHandle, PackPosition, BuildHasherDefault<HandleHasher>>,
    pub(crate) sealed: Vec<PackMeta>,
    /// With their lengths.
    unsynced: Vec<(Unsynced, u32)>,
}

/// A new file that nothing more is appended to.
#[derive(Debug, Clone)]
pub(crate) struct Unsynced {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
}

impl Unsynced {
    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.path))
    }

    /// In parallel: a journaling file system commits concurrent syncs together.
    pub(crate) fn sync_all(files: &[Self]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let take = || files.get(next.fetch_add(1, Ordering::Relaxed));
        let sync_rest = || std::iter::from_fn(take).try_for_each(Self::sync);
        std::thread::scope(|scope| {
            let others = 1..files.len().min(SYNC_THREAD_COUNT_MAX);
            let others: Vec<_> = others.map(|_| scope.spawn(sync_rest)).collect();
            let done = sync_rest();
            others
                .into_iter()
                .map(|thread| thread.join().expect("a sync does not panic"))
                .fold(done, Result::and)
        })
    }
}

impl PackStream {
    pub(crate) fn new(class: PackClass, lane_count_max: usize) -> Self {
        Self {
            class,
            open: Vec::new(),
            lane_count_max,
            sealed_count: 0,
            threads: Vec::new(),
            fresh: HashMap::default(),
            sealed: Vec::new(),
            unsynced: Vec::new(),
        }
    }

    pub(crate) fn append(
        &mut self,
        file_factory: &FileFactory,
        handle: &BlockHandle,
        kind: FrameKind,
        frame: &[u8],
    ) -> Result<()> {
        debug_assert_eq!(PackClass::of(kind), self.class);
        let len = u32::try_from(frame.len()).map_err(|_| Error::Frame("longer than 4 GiB"))?;
        let lane = self.lane();
        if self.open[lane]
            .as_ref()
            .is_some_and(|open| open.len() + pack::record_len(len) > file_factory.pack_len())
        {
            self.seal_lane(file_factory, lane)?;
        }
        let open = match &mut self.open[lane] {
            Some(open) => open,
            none => none.insert(OpenPack::create(file_factory, self.class)?),
        };
        let place = PackPosition { pack: open.id, offset: open.len(), len, kind };
        open.append(frame, len)?;
        self.fresh.insert(*handle, place);
        Ok(())
    }

    /// That of this thread. The first packs are for all threads, so that a small publication has few.
    fn lane(&mut self) -> usize {
        let count = self.lane_count_max.min(self.sealed_count + 1);
        if self.open.len() < count {
            self.open.resize_with(count, || None);
        }
        if count == 1 {
            return 0;
        }
        let thread = std::thread::current().id();
        let number = self.threads.iter().position(|known| *known == thread);
        number.unwrap_or_else(|| {
            self.threads.push(thread);
            self.threads.len() - 1
        }) % count
    }

    pub(crate) fn seal(&mut self, file_factory: &FileFactory) -> Result<()> {
        (0..self.open.len()).try_for_each(|lane| self.seal_lane(file_factory, lane))
    }

    fn seal_lane(&mut self, file_factory: &FileFactory, lane: usize) -> Result<()> {
        if let Some(mut open) = self.open[lane].take() {
            open.flush()?;
            let len = open.len();
            self.sealed_count += 1;
            self.sealed.push(PackMeta { id: open.id, class: self.class, len: len.into() });
            file_factory.packs_len.fetch_add(len.into(), Ordering::Relaxed);
            open.file.start_sync();
            self.unsynced.push((Unsynced { path: open.path, file: open.file }, len));
        }
        Ok(())
    }

    pub(crate) fn flush_for_reading(&mut self, pack: u32) -> Result<()> {
        let open = self.open.iter_mut().flatten().find(|open| open.id == pack);
        open.map_or(Ok(()), OpenPack::flush)
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.open.iter_mut().flatten().try_for_each(OpenPack::flush)
    }

    pub(crate) fn is_overdue(&self) -> bool {
        let len: u64 = self.unsynced.iter().map(|(_, len)| u64::from(*len)).sum();
        len > UNSYNCED_LEN_MAX || self.unsynced.len() > UNSYNCED_COUNT_MAX
    }

    /// The older half of too many. Listed until [`PackStream::synced`]: a commit must not take them
    /// for durable.
    pub(crate) fn overdue(&self) -> Vec<Unsynced> {
        let count = if self.is_overdue() { self.unsynced.len().div_ceil(2) } else { 0 };
        self.unsynced[..count].iter().map(|(pack, _)| pack.clone()).collect()
    }

    pub(crate) fn synced(&mut self, done: &[Unsynced]) {
        self.unsynced.retain(|(pack, _)| done.iter().all(|done| done.path != pack.path));
    }

    pub(crate) fn take_unsynced(&mut self) -> impl Iterator<Item = Unsynced> {
        self.unsynced.drain(..).map(|(pack, _)| pack)
    }

    /// Sorted. They stay until [`PackStream::fresh`] is cleared.
    pub(crate) fn fresh_entries(&self) -> Vec<Entry> {
        self.fresh.iter().map(|(handle, place)| Entry { handle: *handle, place: *place }).collect()
    }
}

#[derive(Debug)]
struct OpenPack {
    id: u32,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    flushed: u32,
    buffer: Vec<u8>,
}

impl OpenPack {
    fn create(file_factory: &FileFactory, class: PackClass) -> Result<Self> {
        let id = file_factory.take_number(&file_factory.next_pack)?;
        let path = file_factory.layout.pack(class, id);
        let file = file_factory.disk.create(&path).map_err(Error::io("create", &path))?;
        let mut buffer = Vec::with_capacity(BUFFER_LEN);
        buffer.extend_from_slice(&pack::header(class, &file_factory.iv));
        Ok(Self { id, path, file, flushed: 0, buffer })
    }

    fn len(&self) -> u32 {
        self.flushed + self.buffer.len() as u32
    }

    fn append(&mut self, frame: &[u8], len: u32) -> Result<()> {
        let (head, pad) = (pack::record_head(len), pack::record_pad(frame.len()));
        if frame.len() >= DIRECT_LEN_MIN {
            return self.write(&[&head, frame, pad]);
        }
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(frame);
        self.buffer.extend_from_slice(pad);
        if self.buffer.len() >= BUFFER_LEN - DIRECT_LEN_MIN { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.write(&[]) }
    }

    fn write(&mut self, parts: &[&[u8]]) -> Result<()> {
        let mut all = Vec::with_capacity(1 + parts.len());
        all.push(&self.buffer[..]);
        all.extend_from_slice(parts);
        self.file.append(&all).map_err(Error::io("write", &self.path))?;
        self.flushed += all.iter().map(|part| part.len() as u32).sum::<u32>();
        self.buffer.clear();
        Ok(())
    }
}

/// Handles are uniform: eight bytes serve as the hash.
#[derive(Debug, Default)]
pub(crate) struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some((_, eight)) = bytes.split_last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*eight);
        }
    }

    fn write_usize(&mut self, _length_of_the_handle: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Packs of a class that are written at once.
pub(crate) const LANE_COUNT_MAX: usize = 16;

const BUFFER_LEN: usize = 256 << 10;
/// Longer frames are written without a copy.
const DIRECT_LEN_MIN: usize = 32 << 10;
/// Of a class. More would lengthen the commit.
const UNSYNCED_LEN_MAX: u64 = 512 << 20;
/// Of a class. Each costs a descriptor, and processes have 1,024.
pub(crate) const UNSYNCED_COUNT_MAX: usize = 64;
const SYNC_THREAD_COUNT_MAX: usize = 16;
/// Packs of the shortest length until a database has 1.75 GiB.
const PACK_COUNT_WANTED: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_grow_with_the_database() {
        for (packs_len, expected) in [
            (0, 448 << 10),
            (1792 << 20, 448 << 10),
            (16 << 30, 4 << 20),
            (128 << 30, 32 << 20),
            (u64::MAX, 32 << 20),
        ] {
            assert_eq!(pack_len_of(packs_len), expected, "{packs_len} bytes");
        }
    }
}
