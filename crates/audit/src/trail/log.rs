//! The writing end of a trail: records become frames, frames become segments, segments are sealed.
//! One thread's; never reads the clock, starts no thread, and decides nothing about what to do when
//! the disk refuses: what was appended stays here and is written at the next try, at the same
//! place.

mod appending;
mod aside;
mod due;
mod found;
mod lost;
mod part;
mod start;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Disk;
use super::disk::Lock;
use super::files::{self, CHECKPOINT, SegmentFile};
use crate::chain::Chain;
use crate::frame::{self, Header, Kind, MAGIC};
use crate::keys::Ratchet;
use crate::merkle::Frontier;
use crate::record::Record;
use crate::seal::Seal;
pub use appending::Appending;
pub use aside::Aside;
use due::Step;
pub use lost::{LOST, Lost};
use part::Part;
pub use start::Opened;

/// When segments end and seals are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// A segment of so many bytes is closed.
    pub len_max: u64,
    /// A segment of this age is closed, nanoseconds.
    pub age_ns_max: u64,
    /// Records wait at most so long for a seal, nanoseconds.
    pub seal_ns_max: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { len_max: 64 << 20, age_ns_max: 3600 * 1_000_000_000, seal_ns_max: 10 * 1_000_000_000 }
    }
}

/// How a trail is written.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When segments end.
    pub rotation: Rotation,
    /// The boot of this machine.
    pub boot: [u8; 16],
    /// The key's file, if not in the trail's directory.
    pub key: Option<PathBuf>,
}

/// Why a trail can't be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk's.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The key isn't the one that the trail's last seal names: the trail was cut, or the key
    /// changed.
    #[error(
        "the key is number {key}, and the trail's end wants number {wanted}: the trail was cut, or this is not its key; ask `vouch audit verify`, then begin another trail"
    )]
    Key {
        /// Epoch of the key.
        key: u64,
        /// Epoch that the trail wants.
        wanted: u64,
    },
    /// Somebody writes it.
    #[error("{}: another program writes this trail; one alone may: stop it, or name another directory", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// What should be a segment isn't.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// A trail that is being written.
pub struct Log {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    key_path: PathBuf,
    options: Options,
    key: Ratchet,
    /// Those that are not durable yet, and last the one that is being written.
    parts: VecDeque<Part>,
    chain: Chain,
    next_seq: u64,
    /// A seal that is not known to be durable: the key that signed it is still there.
    unsettled: Option<Seal>,
    closed: Vec<SegmentFile>,
    /// What the start has left undone, and why: the disk had no room.
    due: VecDeque<Step>,
    refused: Option<LogError>,
    /// What the start has told as lost before: the number of the record, how many it stands for,
    /// and since when they are.
    told: Option<(u64, u64, u64)>,
    /// Others are kept from the directory, and from the key where it lies elsewhere, as long as
    /// this lives.
    _locks: Vec<Lock>,
}

impl Log {
    fn begin(&mut self, number: u64, now_ns: u64) {
        // While a seal is unsettled, the key is still the one that signed it.
        let (epoch, public) = match &self.unsettled {
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
        let mut part = Part {
            number,
            file: None,
            is_unnamed: true,
            is_dirty: false,
            base: 0,
            pending: MAGIC.to_vec(),
            written: 0,
            tree: Frontier::default(),
            begun_ns: now_ns,
            unsealed_ns: None,
            is_closed: false,
        };
        part.tree.push(frame::append(&mut part.pending, Kind::Header, &header.encode(), &mut self.chain));
        self.parts.push_back(part);
    }

    /// Appends an encoded record, in memory, and gives it its sequence number. One that is too long
    /// for a frame can't be made by [`Record::encode`].
    pub fn append(&mut self, body: &mut [u8], now_ns: u64) -> u64 {
        self.appending().append(body, now_ns)
    }

    /// Encodes and appends a record.
    pub fn append_record(&mut self, record: &Record<'_>) -> u64 {
        let mut body = Vec::new();
        record.encode(&mut body);
        self.append(&mut body, record.time_ns)
    }

    /// Keeps for the next start what the disk has not taken, in a place that takes no room.
    pub fn keep_lost(&self, lost: &Lost) -> io::Result<()> {
        lost::keep(&*self.disk, &self.directory, lost)
    }

    /// The trail's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sequence number that the next record gets.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Bytes that the system has not taken yet.
    pub fn pending_len(&self) -> usize {
        self.parts.iter().map(|part| part.pending.len() - part.written).sum()
    }

    /// Bytes that are not known to be durable, and are kept in memory for as long.
    pub fn unsynced_len(&self) -> usize {
        self.parts.iter().map(|part| part.pending.len()).sum()
    }

    /// Segments that were closed and lie uncompressed, to be taken once.
    pub fn take_closed(&mut self) -> Vec<SegmentFile> {
        std::mem::take(&mut self.closed)
    }

    /// Hands all that was appended to the system: it outlives this process, not a power cut. It
    /// stays in memory until a sync, which each seal is, since a system that fails to sync may
    /// have forgotten it. After an error it can be tried again.
    pub fn write(&mut self) -> Result<(), LogError> {
        // Nothing of a segment may be on the disk before the end of the one before is durable: its header
        // tells that the key may go on.
        if self.parts.len() > 1 {
            return self.sync();
        }
        self.catch_up()?;
        for part in &mut self.parts {
            part.write(&*self.disk, &self.directory)?;
        }
        Ok(())
    }

    /// Makes durable all that was appended. After an error it can be tried again: everything not
    /// known to be durable is written anew, since a system that failed to sync may
    /// have forgotten it.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.catch_up()?;
        for part in &mut self.parts {
            part.sync(&*self.disk, &self.directory)?;
        }
        self.settle_synced()
    }

    /// What is due by now: a seal, the next segment. Cheap when nothing is.
    pub fn maintain(&mut self, now_ns: u64) -> Result<(), LogError> {
        if self.unsettled.is_some() {
            self.settle()?;
        }
        let rotation = self.options.rotation;
        let part = self.parts.back().expect("one segment is always open");
        // A clock that was set back says nothing of how long ago it was: due.
        let due = |since: u64, max: u64| now_ns.checked_sub(since).is_none_or(|waited| waited >= max);
        let has_records = part.tree.count() > 1;
        if part.len() >= rotation.len_max || (has_records && due(part.begun_ns, rotation.age_ns_max)) {
            return self.rotate(now_ns);
        }
        if part.unsealed_ns.is_some_and(|since| due(since, rotation.seal_ns_max)) {
            self.append_seal(Kind::Checkpoint, now_ns);
            return self.settle();
        }
        Ok(())
    }

    /// Closes the segment and begins the next.
    pub fn rotate(&mut self, now_ns: u64) -> Result<(), LogError> {
        if self.unsettled.is_some() {
            self.settle()?;
        }
        let number = self.append_seal(Kind::Close, now_ns);
        self.begin(number + 1, now_ns);
        self.settle()
    }

    /// Ends the trail for now: all is durable and sealed.
    pub fn close(mut self, now_ns: u64) -> Result<(), LogError> {
        if self.unsettled.is_some() {
            self.settle()?;
        }
        self.append_seal(Kind::Close, now_ns);
        self.settle()
    }

    fn append_seal(&mut self, kind: Kind, now_ns: u64) -> u64 {
        assert!(self.unsettled.is_none(), "a key signs once");
        let part = self.parts.back_mut().expect("one segment is always open");
        let mut seal = Seal {
            trail: [0; 16],
            segment: part.number,
            epoch: 0,
            next_seq: self.next_seq,
            leaves: part.tree.count(),
            time_ns: now_ns,
            chain: self.chain.0,
            root: part.tree.root(),
            public: [0; 32],
            next: [0; 32],
            signature: [0; 64],
        };
        self.key.seal(&mut seal);
        frame::append(&mut part.pending, kind, &seal.encode(), &mut self.chain);
        part.unsealed_ns = None;
        part.is_closed = kind == Kind::Close;
        self.unsettled = Some(seal);
        part.number
    }

    fn settle(&mut self) -> Result<(), LogError> {
        self.sync()
    }

    /// Once a seal is durable, its key is destroyed; then the segments that are closed and durable
    /// are done with.
    fn settle_synced(&mut self) -> Result<(), LogError> {
        if let Some(seal) = &self.unsettled {
            let next = self.key.next();
            files::replace_key(&*self.disk, &self.key_path, &next).at(&self.key_path)?;
            self.key = next;
            let seal = seal.clone();
            self.unsettled = None;
            self.write_checkpoint(&seal)?;
        }
        while self.parts.len() > 1 && self.parts[0].is_closed {
            let part = self.parts.pop_front().expect("there are two");
            self.closed.push(SegmentFile::open(&self.directory, part.number));
        }
        Ok(())
    }

    fn write_checkpoint(&self, seal: &Seal) -> Result<(), LogError> {
        let path = self.directory.join(CHECKPOINT);
        files::replace_shared(&*self.disk, &path, &seal.encode()).at(&path)
    }
}

trait At<T> {
    fn at(self, path: &Path) -> Result<T, LogError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, LogError> {
        self.map_err(|source| LogError::Io { path: path.to_owned(), source })
    }
}
