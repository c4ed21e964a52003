//! What one thread has recorded and the writer has not taken yet, and how it is put in order with
//! what others have.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Record;
use crate::record::seq_and_time;

/// A bounded buffer. Its lock is held for a copy at most. No other thread's ring is in the same
/// line of the CPU's cache, nor in the one that is fetched along with it.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Ring {
    inside: Mutex<Inside>,
    /// Bytes in it, for those who only look.
    len: AtomicUsize,
}

#[derive(Default)]
struct Inside {
    /// Bodies, each behind its length (4 bytes).
    bytes: Vec<u8>,
    lost: Gap,
}

/// Records that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) count: u64,
    pub(super) since_ns: u64,
}

impl Gap {
    pub(super) fn and_more(self, count: u64, time_ns: u64) -> Gap {
        let since_ns = if self.count == 0 { time_ns } else { self.since_ns.min(time_ns) };
        if count == 0 { self } else { Gap { count: self.count + count, since_ns } }
    }
}

impl Ring {
    /// Takes a record, unless it is full.
    pub(super) fn push(&self, record: &Record<'_>, len_max: usize) -> bool {
        let mut inside = self.inside.lock();
        let start = inside.bytes.len();
        if start >= len_max {
            return false;
        }
        inside.bytes.extend_from_slice(&[0; LEN_LEN]);
        record.encode(&mut inside.bytes);
        let len = (inside.bytes.len() - start - LEN_LEN) as u32;
        inside.bytes[start..start + LEN_LEN].copy_from_slice(&len.to_le_bytes());
        self.len.store(inside.bytes.len(), Ordering::Release);
        true
    }

    pub(super) fn lose(&self, time_ns: u64) {
        let mut inside = self.inside.lock();
        inside.lost = inside.lost.and_more(1, time_ns);
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }
}

/// What was taken from all rings. Its buffers and theirs change places, so that nothing is
/// allocated once they are large enough.
#[derive(Default)]
pub(super) struct Batch {
    buffers: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    lost: Gap,
    order: Vec<(u64, u32, u32)>,
}

impl Batch {
    pub(super) fn take(&mut self, ring: &Ring) {
        let mut inside = ring.inside.lock();
        let lost = std::mem::take(&mut inside.lost);
        self.lost = self.lost.and_more(lost.count, lost.since_ns);
        if inside.bytes.is_empty() {
            return;
        }
        let empty = self.spare.pop().unwrap_or_default();
        self.buffers.push(std::mem::replace(&mut inside.bytes, empty));
        ring.len.store(0, Ordering::Release);
    }

    pub(super) fn take_lost(&mut self) -> Gap {
        std::mem::take(&mut self.lost)
    }

    /// Calls `each` with time and body of all records, oldest first.
    pub(super) fn drain(&mut self, mut each: impl FnMut(u64, &mut [u8])) {
        for (index, buffer) in self.buffers.iter().enumerate() {
            let mut at = 0;
            while let Some(len) = buffer[at..].first_chunk::<LEN_LEN>() {
                let time = seq_and_time(&buffer[at + LEN_LEN..]).map_or(0, |(_, time)| time);
                self.order.push((time, index as u32, at as u32));
                at += LEN_LEN + u32::from_le_bytes(*len) as usize;
            }
        }
        // Of each ring in order already, but for clocks that go back: a merge. Stable, and rings come in
        // order, so one thread's records keep theirs.
        self.order.sort_by_key(|(time, ..)| *time);
        for (time, index, at) in self.order.drain(..) {
            let buffer = &mut self.buffers[index as usize][at as usize..];
            let len = buffer.first_chunk::<LEN_LEN>().map_or(0, |len| u32::from_le_bytes(*len)) as usize;
            each(time, &mut buffer[LEN_LEN..LEN_LEN + len]);
        }
        for mut buffer in self.buffers.drain(..) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// The calling thread's number.
pub(super) fn mine() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = COUNT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}

/// Bytes before a body that say how long it is.
const LEN_LEN: usize = 4;
