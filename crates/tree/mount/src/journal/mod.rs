//! State that the kernel relies on, in a memfd_create(2) file that a supervisor holds. A record is
//! written before the reply that depends on it (docs/formats/mount-journal.md).

pub(crate) mod image;
pub(crate) mod record;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use vouch_xdr::{Writer, Xdr as _};

use record::Record;

pub(crate) struct Journal {
    inner: Mutex<Inner>,
    wants_snapshot: AtomicBool,
}

struct Inner {
    file: File,
    end: u64,
    /// No reply depends on these frames: written with the next ones.
    pending: Vec<u8>,
    /// Bytes of the last snapshot, and since.
    snapshot_len: u64,
    since_snapshot: u64,
    state: State,
    /// A change came while the journal was frozen.
    has_missed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    /// Another process takes the mount over.
    Frozen,
    /// A write failed: no process can take the mount over.
    Broken,
}

pub(crate) struct Snapshot {
    start: u64,
}

impl Journal {
    pub(crate) fn create() -> io::Result<File> {
        let file = File::from(memfd_create("vouch-mount", MemfdFlags::CLOEXEC)?);
        Self::write_header(&file, 0)?;
        Ok(file)
    }

    /// Cuts off what follows `end`: a killed process wrote it in part.
    pub(crate) fn open(file: File, end: u64) -> io::Result<Self> {
        file.set_len(end)?;
        let inner = Inner {
            file,
            end,
            pending: Vec::new(),
            snapshot_len: 0,
            since_snapshot: 0,
            state: State::Active,
            has_missed: false,
        };
        Ok(Self { inner: Mutex::new(inner), wants_snapshot: AtomicBool::new(false) })
    }

    /// One frame of changes. They are in the file on return.
    pub(crate) fn append(&self, records: impl IntoIterator<Item = Record>) {
        let mut inner = self.inner.lock();
        if inner.add(records) {
            inner.write();
            if inner.since_snapshot > 2 * inner.snapshot_len + SLACK_BYTES {
                self.wants_snapshot.store(true, Ordering::Relaxed);
            }
        }
    }

    /// No reply depends on these changes: a kill may lose them.
    pub(crate) fn append_later(&self, records: impl IntoIterator<Item = Record>) {
        let mut inner = self.inner.lock();
        if inner.add(records) && inner.pending.len() > PENDING_BYTES_MAX {
            inner.write();
        }
    }

    pub(crate) fn wants_snapshot(&self) -> bool {
        self.wants_snapshot.load(Ordering::Relaxed)
    }

    /// Append the whole state, then call [`Journal::finish_snapshot`].
    pub(crate) fn begin_snapshot(&self) -> Snapshot {
        let mut inner = self.inner.lock();
        inner.write();
        Snapshot { start: inner.end }
    }

    /// Replaces all records before the snapshot.
    pub(crate) fn finish_snapshot(&self, snapshot: &Snapshot) {
        let mut inner = self.inner.lock();
        inner.write();
        if inner.state != State::Active {
            return;
        }
        if let Err(error) = Self::write_header(&inner.file, snapshot.start) {
            return inner.break_off(&error);
        }
        (inner.snapshot_len, inner.since_snapshot) = (inner.end - snapshot.start, 0);
        self.wants_snapshot.store(false, Ordering::Relaxed);
        // Without this, only the unmount frees the memory.
        let hole = (snapshot.start & !(PAGE_LEN - 1)).saturating_sub(PAGE_LEN);
        if hole > 0 {
            let _ = fallocate(
                &inner.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                PAGE_LEN,
                hole,
            );
        }
    }

    /// Later records are ignored. An error: a write has failed, so the journal is incomplete.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let mut inner = self.inner.lock();
        inner.write();
        if inner.state == State::Broken {
            return Err(io::Error::other("the mount journal is incomplete"));
        }
        inner.state = State::Frozen;
        Ok(())
    }

    pub(crate) fn thaw(&self) {
        let mut inner = self.inner.lock();
        if inner.state == State::Frozen {
            inner.state = State::Active;
            let has_missed = std::mem::take(&mut inner.has_missed);
            self.wants_snapshot.fetch_or(has_missed, Ordering::Relaxed);
        }
    }

    fn write_header(file: &File, start: u64) -> io::Result<()> {
        let mut w = Writer::new();
        w.opaque_fixed(&MAGIC);
        w.u32(VERSION);
        w.u32(0);
        w.u64(start);
        file.write_all_at(w.as_bytes(), 0)
    }
}

impl Inner {
    fn add(&mut self, records: impl IntoIterator<Item = Record>) -> bool {
        if self.state != State::Active {
            self.has_missed = true;
            return false;
        }
        let start = self.pending.len();
        let mut w = Writer::append_to(std::mem::take(&mut self.pending));
        w.u32(0);
        for record in records {
            record.encode(&mut w);
        }
        let len = w.len() - start - 4;
        match u32::try_from(len) {
            Ok(len @ 1..) => w.set_u32(start, len),
            _ => w.truncate(start),
        }
        self.pending = w.into_bytes();
        !self.pending.is_empty()
    }

    fn write(&mut self) {
        if self.state != State::Active || self.pending.is_empty() {
            return;
        }
        match self.file.write_all_at(&self.pending, self.end) {
            Ok(()) => {
                self.end += self.pending.len() as u64;
                self.since_snapshot += self.pending.len() as u64;
                self.pending.clear();
            }
            Err(error) => self.break_off(&error),
        }
    }

    fn break_off(&mut self, error: &io::Error) {
        tracing::warn!(
            "writing the mount journal: {error}; this mount can't be taken over by another process any more"
        );
        self.state = State::Broken;
        self.pending = Vec::new();
        let _ = Journal::write_header(&self.file, 0);
    }
}

pub(crate) const MAGIC: [u8; 8] = *b"vouchmnt";

/// A process refuses other versions; the mount's process goes on.
pub(crate) const VERSION: u32 = 1;

/// Magic, version, reserved, offset of the first record.
pub(crate) const HEADER_LEN: u64 = 24;

pub(crate) const FRAME_LEN_MAX: usize = 64 << 20;

/// Added to twice the state before a snapshot: the file stays below three times the state.
const SLACK_BYTES: u64 = 1 << 20;

const PENDING_BYTES_MAX: usize = 16 << 10;

const PAGE_LEN: u64 = 4096;
