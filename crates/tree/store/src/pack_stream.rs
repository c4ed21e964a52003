//! A writer's new frames of one class: the open pack, and records not yet in a segment.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    pub(crate) pack_len_max: u32,
    pub(crate) next_pack: AtomicU32,
    pub(crate) next_segment: AtomicU32,
}

impl FileFactory {
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

#[derive(Debug)]
pub(crate) struct PackStream {
    class: PackClass,
    open: Option<OpenPack>,
    pub(crate) fresh: HashMap<BlockHandle, PackPosition, BuildHasherDefault<HandleHasher>>,
    pub(crate) sealed: Vec<PackMeta>,
    unsynced: VecDeque<Unsynced>,
}

#[derive(Debug, Clone)]
pub(crate) struct Unsynced {
    id: u32,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
}

impl Unsynced {
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &self.path))
    }
}

impl PackStream {
    pub(crate) fn new(class: PackClass) -> Self {
        Self {
            class,
            open: None,
            fresh: HashMap::default(),
            sealed: Vec::new(),
            unsynced: VecDeque::new(),
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
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.len() + pack::record_len(len) > file_factory.pack_len_max)
        {
            self.seal()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenPack::create(file_factory, self.class)?),
        };
        let place = PackPosition { pack: open.id, offset: open.len(), len, kind };
        open.append(frame, len)?;
        self.fresh.insert(*handle, place);
        Ok(())
    }

    pub(crate) fn seal(&mut self) -> Result<()> {
        if let Some(mut open) = self.open.take() {
            open.flush()?;
            self.sealed.push(PackMeta { id: open.id, class: self.class, len: open.len().into() });
            open.file.start_sync();
            self.unsynced.push_back(Unsynced { id: open.id, path: open.path, file: open.file });
        }
        Ok(())
    }

    pub(crate) fn flush_for_reading(&mut self, pack: u32) -> Result<()> {
        match &mut self.open {
            Some(open) if open.id == pack => open.flush(),
            _ => Ok(()),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.open.as_mut().map_or(Ok(()), OpenPack::flush)
    }

    /// Listed until [`PackStream::synced`]: a commit must not take it for durable.
    pub(crate) fn oldest_overdue(&self) -> Option<Unsynced> {
        (self.unsynced.len() > UNSYNCED_COUNT_MAX).then(|| self.unsynced.front().cloned()).flatten()
    }

    pub(crate) fn synced(&mut self, done: &Unsynced) {
        self.unsynced.retain(|unsynced| unsynced.id != done.id);
    }

    pub(crate) fn sync_all(&mut self) -> Result<()> {
        while let Some(unsynced) = self.unsynced.front() {
            unsynced.sync()?;
            self.unsynced.pop_front();
        }
        Ok(())
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

const BUFFER_LEN: usize = 256 << 10;
/// Longer frames are written without a copy.
const DIRECT_LEN_MIN: usize = 32 << 10;
/// 512 MiB a class. More would lengthen the commit and cost descriptors.
const UNSYNCED_COUNT_MAX: usize = 16;
