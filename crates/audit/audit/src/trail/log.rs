//! Appends records from one thread. If the disk fails, the bytes stay in memory, and the caller
//! decides when to retry.

mod append_batch;
mod lost_count;
mod open;
mod quarantine;
mod recovery_steps;
mod segment_buffer;
mod segment_scan;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Disk;
use super::disk::Lock;
use super::files::{self, CHECKPOINT_FILE, SegmentFile};
use crate::chain::Chain;
use crate::frame::{self, Header, Kind, MAGIC};
use crate::keys::Ratchet;
use crate::merkle::Frontier;
use crate::record::Record;
use crate::seal::Seal;
pub use append_batch::AppendBatch;
#[cfg(test)]
pub(crate) use lost_count::LOST_COUNT_FILE;
pub use lost_count::LostCount;
pub use open::Recovery;
pub use quarantine::QuarantineFile;
use recovery_steps::RecoveryStep;
use segment_buffer::SegmentBuffer;

/// When segments end and seals are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Close a segment at this length, in bytes.
    pub len_max: u64,
    /// Close a segment at this age, in nanoseconds.
    pub age_ns_max: u64,
    /// Seal records after at most this time, in nanoseconds.
    pub seal_ns_max: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation {
            len_max: 64 << 20,
            age_ns_max: 3600 * 1_000_000_000,
            seal_ns_max: 10 * 1_000_000_000,
        }
    }
}

/// Options of a log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sizes and times of segments.
    pub rotation: Rotation,
    /// The machine's boot id, for the headers of segments.
    pub boot: [u8; 16],
    /// Key file, if outside the trail's directory.
    pub key: Option<PathBuf>,
}

/// Why a trail cannot be opened or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum LogError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the key has epoch {key}, but the trail's end requires epoch {required}: the trail was truncated, or the key was replaced; run `vouch audit verify`, then start a new trail"
    )]
    Key { key: u64, required: u64 },
    #[error("{}: another process writes this trail; stop that process, or use another directory", path.display())]
    Busy { path: PathBuf },
    #[error("{}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: &'static str },
}

/// Writes a trail from one thread. Nothing is on disk before [`Log::write`] or [`Log::sync`].
pub struct Log {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    key_path: PathBuf,
    options: Options,
    key: Ratchet,
    buffers: VecDeque<SegmentBuffer>,
    chain: Chain,
    next_seq: u64,
    pending_seal: Option<Seal>,
    closed: Vec<SegmentFile>,
    /// Recovery steps that failed on a full disk, and the error.
    recovery_steps: VecDeque<RecoveryStep>,
    recovery_error: Option<LogError>,
    reported_gap: Option<(u64, u64, u64)>,
    _locks: Vec<Lock>,
}

impl Log {
    fn start_segment(&mut self, number: u64, now_ns: u64) {
        // The current key signed the pending seal.
        let (epoch, public) = match &self.pending_seal {
            Some(seal) => (seal.epoch + 1, seal.next),
            None => (self.key.epoch(), self.key.public()),
        };
        let header = Header {
            segment: number,
            first_seq: self.next_seq,
            time_ns: now_ns,
            boot: self.options.boot,
            trail: self.key.trail(),
            previous: self.chain.0,
            epoch,
            public,
        };
        let mut buffer = SegmentBuffer {
            number,
            file: None,
            is_name_unsynced: true,
            is_dirty: false,
            pending_offset: 0,
            pending: MAGIC.to_vec(),
            written: 0,
            tree: Frontier::default(),
            begun_ns: now_ns,
            unsealed_ns: None,
            is_closed: false,
        };
        buffer.tree.push(frame::append(
            &mut buffer.pending,
            Kind::Header,
            &header.encode(),
            &mut self.chain,
        ));
        self.buffers.push_back(buffer);
    }

    /// Appends in memory. Returns the record's sequence number.
    pub fn append(&mut self, body: &mut [u8], now_ns: u64) -> u64 {
        self.append_batch().append(body, now_ns)
    }

    /// Encodes and appends in memory. Returns the record's sequence number.
    pub fn append_record(&mut self, record: &Record<'_>) -> u64 {
        let mut body = Vec::new();
        record.encode(&mut body);
        self.append(&mut body, record.time_ns)
    }

    /// Count of unwritten records for the next start, in a preallocated file.
    pub(crate) fn store_lost_count(&self, lost: &LostCount) -> io::Result<()> {
        lost_count::write(&*self.disk, &self.directory, lost)
    }

    /// Of the trail.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sequence number of the next record.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.pending.len() - buffer.written).sum()
    }

    pub(crate) fn unsynced_len(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.pending.len()).sum()
    }

    pub(crate) fn take_closed(&mut self) -> Vec<SegmentFile> {
        std::mem::take(&mut self.closed)
    }

    /// Written frames survive a crash of the process, but not a power cut. They stay in memory
    /// until the next sync, which may drop them. Repeatable after an error.
    pub fn write(&mut self) -> Result<(), LogError> {
        // The header shows that the key advanced, so the previous segment must be durable first.
        if self.buffers.len() > 1 {
            return self.sync();
        }
        self.run_recovery_steps()?;
        for buffer in &mut self.buffers {
            buffer.write(&*self.disk, &self.directory)?;
        }
        Ok(())
    }

    /// A repetition after an error rewrites all bytes that the failed sync may have dropped.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.run_recovery_steps()?;
        for buffer in &mut self.buffers {
            buffer.sync(&*self.disk, &self.directory)?;
        }
        self.finish_seal()
    }

    /// Makes a seal or starts the next segment if due.
    pub fn maintain(&mut self, now_ns: u64) -> Result<(), LogError> {
        if self.pending_seal.is_some() {
            self.sync()?;
        }
        let rotation = self.options.rotation;
        let buffer = self.buffers.back().expect("one segment is always open");
        // The clock was set back and the age is unknown, so the work is due.
        let is_due =
            |since: u64, max: u64| now_ns.checked_sub(since).is_none_or(|waited| waited >= max);
        let has_records = buffer.tree.count() > 1;
        if buffer.len() >= rotation.len_max
            || (has_records && is_due(buffer.begun_ns, rotation.age_ns_max))
        {
            return self.rotate(now_ns);
        }
        if buffer.unsealed_ns.is_some_and(|since| is_due(since, rotation.seal_ns_max)) {
            self.append_seal(Kind::Checkpoint, now_ns);
            return self.sync();
        }
        Ok(())
    }

    pub(crate) fn rotate(&mut self, now_ns: u64) -> Result<(), LogError> {
        if self.pending_seal.is_some() {
            self.sync()?;
        }
        let number = self.append_seal(Kind::Close, now_ns);
        self.start_segment(number + 1, now_ns);
        self.sync()
    }

    /// Makes everything durable and closes the trail with a seal.
    pub fn close(mut self, now_ns: u64) -> Result<(), LogError> {
        if self.pending_seal.is_some() {
            self.sync()?;
        }
        self.append_seal(Kind::Close, now_ns);
        self.sync()
    }

    fn append_seal(&mut self, kind: Kind, now_ns: u64) -> u64 {
        assert!(self.pending_seal.is_none(), "a key signs once");
        let buffer = self.buffers.back_mut().expect("one segment is always open");
        let mut seal = Seal {
            trail: [0; 16],
            segment: buffer.number,
            epoch: 0,
            next_seq: self.next_seq,
            leaves: buffer.tree.count(),
            time_ns: now_ns,
            chain: self.chain.0,
            root: buffer.tree.root(),
            public: [0; 32],
            next: [0; 32],
            signature: [0; 64],
            pair: None,
        };
        self.key.seal(&mut seal);
        frame::append(&mut buffer.pending, kind, &seal.encode(), &mut self.chain);
        buffer.unsealed_ns = None;
        buffer.is_closed = kind == Kind::Close;
        self.pending_seal = Some(seal);
        buffer.number
    }

    /// Replaces the key once its seal is durable, and releases closed durable segments.
    fn finish_seal(&mut self) -> Result<(), LogError> {
        if let Some(seal) = &self.pending_seal {
            let next = self.key.next();
            files::replace_key(&*self.disk, &self.key_path, &next).with_path(&self.key_path)?;
            self.key = next;
            let seal = seal.clone();
            self.pending_seal = None;
            self.write_checkpoint(&seal)?;
        }
        while self.buffers.len() > 1 && self.buffers[0].is_closed {
            let buffer = self.buffers.pop_front().expect("two entries exist");
            self.closed.push(SegmentFile::open(&self.directory, buffer.number));
        }
        Ok(())
    }

    fn write_checkpoint(&self, seal: &Seal) -> Result<(), LogError> {
        let path = self.directory.join(CHECKPOINT_FILE);
        files::replace_shared(&*self.disk, &path, &seal.encode()).with_path(&path)
    }
}

trait WithPath<T> {
    fn with_path(self, path: &Path) -> Result<T, LogError>;
}

impl<T> WithPath<T> for io::Result<T> {
    fn with_path(self, path: &Path) -> Result<T, LogError> {
        self.map_err(|source| LogError::Io { path: path.to_owned(), source })
    }
}
