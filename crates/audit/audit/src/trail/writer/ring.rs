use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Record;
use crate::record::seq_and_time;

/// The alignment separates the cache lines of rings, including the prefetched neighbour.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Ring {
    state: Mutex<RingState>,
    len: AtomicUsize,
}

#[derive(Default)]
struct RingState {
    bytes: Vec<u8>,
    lost: Gap,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) count: u64,
    pub(super) since_ns: u64,
}

impl Gap {
    pub(super) fn with_lost(self, count: u64, time_ns: u64) -> Gap {
        let since_ns = if self.count == 0 { time_ns } else { self.since_ns.min(time_ns) };
        if count == 0 { self } else { Gap { count: self.count + count, since_ns } }
    }
}

impl Ring {
    pub(super) fn push(&self, record: &Record<'_>, len_max: usize) -> bool {
        let mut state = self.state.lock();
        let start = state.bytes.len();
        if start >= len_max {
            return false;
        }
        state.bytes.extend_from_slice(&[0; LEN_LEN]);
        record.encode(&mut state.bytes);
        let len = (state.bytes.len() - start - LEN_LEN) as u32;
        state.bytes[start..start + LEN_LEN].copy_from_slice(&len.to_le_bytes());
        self.len.store(state.bytes.len(), Ordering::Release);
        true
    }

    pub(super) fn count_lost(&self, time_ns: u64) {
        let mut state = self.state.lock();
        state.lost = state.lost.with_lost(1, time_ns);
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }
}

#[derive(Default)]
pub(super) struct Batch {
    buffers: Vec<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    lost: Gap,
    order: Vec<(u64, u32, u32)>,
}

impl Batch {
    pub(super) fn take(&mut self, ring: &Ring) {
        let mut state = ring.state.lock();
        let lost = std::mem::take(&mut state.lost);
        self.lost = self.lost.with_lost(lost.count, lost.since_ns);
        if state.bytes.is_empty() {
            return;
        }
        let empty = self.spare.pop().unwrap_or_default();
        self.buffers.push(std::mem::replace(&mut state.bytes, empty));
        ring.len.store(0, Ordering::Release);
    }

    pub(super) fn take_lost(&mut self) -> Gap {
        std::mem::take(&mut self.lost)
    }

    pub(super) fn drain(&mut self, mut each: impl FnMut(u64, &mut [u8])) {
        for (index, buffer) in self.buffers.iter().enumerate() {
            let mut at = 0;
            while let Some(len) = buffer[at..].first_chunk::<LEN_LEN>() {
                let time = seq_and_time(&buffer[at + LEN_LEN..]).map_or(0, |(_, time)| time);
                self.order.push((time, index as u32, at as u32));
                at += LEN_LEN + u32::from_le_bytes(*len) as usize;
            }
        }
        // A stable sort keeps each thread's order if the clock was set back.
        self.order.sort_by_key(|(time, ..)| *time);
        for (time, index, at) in self.order.drain(..) {
            let buffer = &mut self.buffers[index as usize][at as usize..];
            let len =
                buffer.first_chunk::<LEN_LEN>().map_or(0, |len| u32::from_le_bytes(*len)) as usize;
            each(time, &mut buffer[LEN_LEN..LEN_LEN + len]);
        }
        for mut buffer in self.buffers.drain(..) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

pub(super) fn thread_number() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = COUNT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|thread_number| *thread_number)
}

const LEN_LEN: usize = 4;
