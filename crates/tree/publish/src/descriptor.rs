//! Bounds the open directories: deep trees do not exhaust descriptors.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::attributes::DeviceAlias;
use crate::error::FileError;

#[derive(Debug)]
pub(crate) struct Descriptors {
    open: Arc<AtomicUsize>,
    open_count_max: usize,
    /// In the order of their opening: the first ones are the farthest from where the walk is.
    kept: Mutex<VecDeque<Weak<Slot>>>,
    /// Cleared at the first file of another owner: only owners may use O_NOATIME.
    no_atime: AtomicBool,
    pub(crate) alias: DeviceAlias,
}

impl Descriptors {
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let wanted = limit.maximum.map_or(WANTED_COUNT, |max| max.min(WANTED_COUNT));
        if limit.current.is_some_and(|now| now < wanted) {
            // Otherwise fewer directories stay open.
            let _ = setrlimit(
                Resource::Nofile,
                Rlimit { current: Some(wanted), maximum: limit.maximum },
            );
        }
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(WANTED_COUNT);
        let open_count_max = usize::try_from(limit / 2).unwrap_or(usize::MAX).min(OPEN_COUNT_MAX);
        Self {
            open: Arc::default(),
            open_count_max,
            kept: Mutex::default(),
            no_atime: AtomicBool::new(true),
            alias: DeviceAlias::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_limit(open_count_max: usize) -> Self {
        Self { open_count_max, ..Self::new() }
    }

    #[cfg(test)]
    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn directory(
        &self,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<OpenDirectory, Errno> {
        let fd = self.open(dir, name, OFlags::DIRECTORY)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(OpenDirectory { fd, open: self.open.clone() })
    }

    /// Opens for reading. Never blocks, never follows a link.
    pub(crate) fn file(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, FileError> {
        self.open(dir, name, OFlags::NONBLOCK | OFlags::NOCTTY).map_err(FileError::system("open"))
    }

    fn open(&self, dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if self.no_atime.load(Ordering::Relaxed) {
            match rustix::fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
                Err(Errno::PERM) => self.no_atime.store(false, Ordering::Relaxed),
                result => return result,
            }
        }
        rustix::fs::openat(dir, name, flags, Mode::empty())
    }

    /// Keeps the directory open, and closes the one that was kept first if there are too many.
    pub(crate) fn keep(&self, slot: &Arc<Slot>, open: Arc<OpenDirectory>) {
        *slot.lock() = Some(open);
        let mut kept = self.kept.lock();
        kept.push_back(Arc::downgrade(slot));
        while self.open.load(Ordering::Relaxed) > self.open_count_max {
            let Some(oldest) = kept.pop_front() else { break };
            if let Some(slot) = oldest.upgrade() {
                slot.lock().take();
            }
        }
        if kept.len() > 2 * OPEN_COUNT_MAX {
            kept.retain(|slot| slot.strong_count() > 0);
        }
    }
}

/// Where a directory is kept open.
pub(crate) type Slot = Mutex<Option<Arc<OpenDirectory>>>;

#[derive(Debug)]
pub(crate) struct OpenDirectory {
    fd: OwnedFd,
    open: Arc<AtomicUsize>,
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

const WANTED_COUNT: u64 = 16 * 1024;

/// Directories open during work on their entries or below; others are opened again.
const OPEN_COUNT_MAX: usize = 4 * 1024;
