//! The space of an export's files, where the file system has no limits for directories.
//!
//! Each change of a file adds the difference. A walk over all files finds the sum; a change during
//! the walk also counts the file's earlier space, unless the walk has seen it.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::Statx;

use crate::attributes::stat;

const UNLIMITED: u64 = u64::MAX;

/// Local programs change files too, so the files are counted anew.
const RECOUNT_MS: u64 = 3_600_000;

/// Space is given in such parts.
const BLOCK_LEN: u64 = 4096;

pub(crate) struct Usage {
    limit: AtomicU64,
    used: AtomicI64,
    reserved: AtomicU64,
    counted_ms: AtomicU64,
    is_recounting: AtomicBool,
    recount: Mutex<Option<Recount>>,
}

#[derive(Default)]
struct Recount {
    used: i64,
    seen: FileNumbers,
}

impl Default for Usage {
    fn default() -> Self {
        Usage {
            limit: AtomicU64::new(UNLIMITED),
            used: AtomicI64::new(0),
            reserved: AtomicU64::new(0),
            counted_ms: AtomicU64::new(0),
            is_recounting: AtomicBool::new(false),
            recount: Mutex::default(),
        }
    }
}

/// Bytes on disk.
pub(crate) fn counted(stat: &Statx) -> u64 {
    stat.stx_blocks.saturating_mul(512)
}

impl Usage {
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != UNLIMITED
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used() >= self.limit.load(Ordering::Relaxed)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed).max(0).cast_unsigned()
    }

    pub(super) fn set_limit(&self, limit: Option<u64>) {
        self.limit.store(limit.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// Of `len` bytes as many as are left, for as long as the result lives.
    pub(crate) fn reserve(&self, len: u64) -> Reserved<'_> {
        if !self.is_limited() {
            return Reserved::nothing(len);
        }
        // Changes add to `used` before their reservation ends.
        let reserved = self.reserved.fetch_add(len, Ordering::Relaxed);
        let used = self.used().saturating_add(reserved);
        let left = self.limit.load(Ordering::Relaxed).saturating_sub(used);
        let granted = if len <= left { len } else { left / BLOCK_LEN * BLOCK_LEN };
        self.reserved.fetch_sub(len - granted, Ordering::Relaxed);
        Reserved { usage: Some(self), len: granted }
    }

    pub(crate) fn change(&self, stat: &Statx, before: u64, after: u64) {
        if !self.is_limited() {
            return;
        }
        let more = after.cast_signed().wrapping_sub(before.cast_signed());
        if self.is_recounting.load(Ordering::Acquire)
            && let Some(recount) = &mut *self.recount.lock()
        {
            if recount.seen.insert(stat) {
                recount.used += before.cast_signed();
            }
            recount.used += more;
        }
        self.used.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn is_recount_due(&self, now_ms: u64) -> bool {
        self.is_limited()
            && now_ms.saturating_sub(self.counted_ms.load(Ordering::Relaxed)) >= RECOUNT_MS
    }

    /// False while another thread counts.
    pub(super) fn begin_recount(&self, now_ms: u64) -> bool {
        let mut recount = self.recount.lock();
        if recount.is_some() {
            return false;
        }
        self.counted_ms.store(now_ms, Ordering::Relaxed);
        *recount = Some(Recount::default());
        self.is_recounting.store(true, Ordering::Release);
        true
    }

    pub(super) fn see(&self, stat: &Statx) {
        if let Some(recount) = &mut *self.recount.lock()
            && recount.seen.insert(stat)
        {
            recount.used += counted(stat).cast_signed();
        }
    }

    pub(super) fn end_recount(&self, is_complete: bool) {
        let recount = self.recount.lock().take();
        self.is_recounting.store(false, Ordering::Release);
        if let Some(recount) = recount.filter(|_| is_complete) {
            self.used.store(recount.used, Ordering::Relaxed);
        }
    }
}

/// Counts until dropped: after that, the file's own space does.
pub(crate) struct Reserved<'a> {
    usage: Option<&'a Usage>,
    pub(crate) len: u64,
}

impl Reserved<'_> {
    pub(crate) fn nothing(len: u64) -> Self {
        Reserved { usage: None, len }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(usage) = self.usage {
            usage.reserved.fetch_sub(self.len, Ordering::Relaxed);
        }
    }
}

/// The space that a file has in [`Usage`].
pub(crate) struct CountedSpace(AtomicU64);

const UNKNOWN: u64 = u64::MAX;

impl Default for CountedSpace {
    fn default() -> Self {
        CountedSpace(AtomicU64::new(UNKNOWN))
    }
}

impl CountedSpace {
    /// Before a change.
    pub(crate) fn learn(&self, fd: BorrowedFd<'_>) {
        if self.0.load(Ordering::Relaxed) == UNKNOWN
            && let Ok(stat) = stat(fd)
        {
            let _ = self.0.compare_exchange(
                UNKNOWN,
                counted(&stat),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    pub(crate) fn begin_empty(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// After a change.
    pub(crate) fn count(&self, fd: BorrowedFd<'_>, usage: &Usage) {
        if self.0.load(Ordering::Relaxed) != UNKNOWN
            && let Ok(stat) = stat(fd)
        {
            self.set(counted(&stat), &stat, usage);
        }
    }

    pub(crate) fn end(&self, fd: BorrowedFd<'_>, usage: &Usage) {
        if usage.is_limited()
            && let Ok(stat) = stat(fd)
        {
            self.learn(fd);
            self.set(0, &stat, usage);
        }
    }

    fn set(&self, after: u64, stat: &Statx, usage: &Usage) {
        let before = self.0.swap(after, Ordering::Relaxed);
        usage.change(stat, before, after);
    }
}

/// File systems give neighbouring numbers, so 64 of them share a word.
#[derive(Default)]
struct FileNumbers(HashMap<(u32, u64), u64>);

impl FileNumbers {
    /// False for a file that has been inserted before, through any of its names.
    fn insert(&mut self, stat: &Statx) -> bool {
        // Subvolumes have device numbers of their own.
        let word = self.0.entry((stat.stx_dev_minor, stat.stx_ino >> 6)).or_default();
        let bit = 1 << (stat.stx_ino & 63);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}
