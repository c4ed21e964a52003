//! Readers verify each frame, so a full, corrupt or missing disk only costs a fetch. Files:
//! docs/formats/cache.md.

pub(crate) mod segment;
mod segment_index;
mod whole_files;
mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use vouch_tree::{BlockHandle, FRAME_LEN_MAX};

use segment::{Disk, SystemDisk};
use segment_index::SegmentIndex;
use writer::WriteCommand;

pub(crate) use whole_files::{StoredFile, WholeFiles, WholeKey};

/// Further frames are dropped.
const QUEUE_LEN_MAX: usize = 4096;

const QUEUE_BYTES_MIN: u64 = 16 << 20;

/// Of the memory cache, which mostly has the queued frames too.
const QUEUE_SHARE: u64 = 4;

const FLUSH_MAX: Duration = Duration::from_secs(5);

/// Location and size of the disk cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCacheOptions {
    /// Created if missing. Several processes may share it.
    pub dir: PathBuf,
    /// Limit on all files, in whole blocks. At least 4 MiB.
    pub quota_bytes: u64,
}

pub(crate) struct DiskCache {
    index: Arc<SegmentIndex>,
    commands: SyncSender<WriteCommand>,
    queued_bytes: Arc<AtomicU64>,
    queued_bytes_max: u64,
    pub(crate) whole: WholeFiles,
}

impl DiskCache {
    /// Blocks. O(cached frames).
    pub(crate) fn open(options: &DiskCacheOptions, memory_cache_bytes: u64) -> io::Result<Self> {
        Self::open_on(options, memory_cache_bytes, Arc::new(SystemDisk))
    }

    fn open_on(
        options: &DiskCacheOptions,
        memory_cache_bytes: u64,
        disk: Arc<dyn Disk>,
    ) -> io::Result<Self> {
        let queued_bytes_max = (memory_cache_bytes / QUEUE_SHARE).max(QUEUE_BYTES_MIN);
        let index = Arc::new(SegmentIndex::open(&options.dir, options.quota_bytes)?);
        let whole = WholeFiles::open(&options.dir, Arc::clone(&index));
        let (commands, queue) = sync_channel(QUEUE_LEN_MAX);
        let queued_bytes = Arc::new(AtomicU64::new(0));
        let (on, bytes) = (Arc::clone(&index), Arc::clone(&queued_bytes));
        std::thread::Builder::new()
            .name("vouch-cache".into())
            .spawn(move || writer::run(&on, &*disk, &queue, &bytes))?;
        Ok(Self { index, commands, queued_bytes, queued_bytes_max, whole })
    }

    pub(crate) fn get(&self, handle: &BlockHandle) -> Option<Vec<u8>> {
        self.index.get(handle)
    }

    pub(crate) fn contains(&self, handle: &BlockHandle) -> bool {
        self.index.contains(handle)
    }

    pub(crate) fn put(&self, handle: &BlockHandle, stored: Bytes) {
        let len = stored.len() as u64;
        if stored.len() > FRAME_LEN_MAX
            || self.contains(handle)
            || self.queued_bytes.load(Ordering::Relaxed) > self.queued_bytes_max
        {
            return;
        }
        self.queued_bytes.fetch_add(len, Ordering::Relaxed);
        if self.commands.try_send(WriteCommand::Keep { handle: *handle, stored }).is_err() {
            self.queued_bytes.fetch_sub(len, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove_frame(&self, handle: &BlockHandle) {
        self.index.remove_frame(handle);
    }

    pub(crate) async fn flush(&self) {
        let (done, waited) = tokio::sync::oneshot::channel();
        let mut command = WriteCommand::Flush(done);
        let work = async {
            while let Err(TrySendError::Full(back)) = self.commands.try_send(command) {
                command = back;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let _ = waited.await;
        };
        let _ = tokio::time::timeout(FLUSH_MAX, work).await;
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.index.used_bytes()
    }

    pub(crate) fn quota_bytes(&self) -> u64 {
        self.index.quota_bytes()
    }
}

/// Opens a file of the directory. If other users may write there, it may be a link of theirs to
/// another file, or a pipe that never answers.
fn open_regular(path: &Path, is_writable: bool) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(is_writable).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is not a regular file")),
    }
}

#[cfg(test)]
mod tests;
