//! What all operations share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use vouch_nfs4_client::{Compound, Reply};

use crate::attributes::{Converter, Known, WANTED};
use crate::caller::{Caller, Callers};
use crate::error::Result;
use crate::fuse::{Device, Entry};
use crate::inode::{Inode, InodeTable, Place};
use crate::op::listing::Directory;
use crate::options::MountOptions;
use crate::report::Counters;
use crate::session::Session;

pub(crate) struct Mount {
    pub(crate) device: Device,
    pub(crate) session: Arc<Session>,
    pub(crate) inodes: InodeTable,
    pub(crate) converter: Converter,
    pub(crate) callers: Callers,
    pub(crate) options: MountOptions,
    /// Minor version 2 or later: SEEK, ALLOCATE, COPY, extended attributes.
    pub(crate) has_ranges: bool,
    pub(crate) directories: Mutex<HashMap<u64, Arc<Directory>>>,
    /// The server says that a lock may be free (CB_NOTIFY_LOCK).
    pub(crate) lock_freed: Arc<Notify>,
    pub(crate) pending: Mutex<HashMap<u64, Pending>>,
    pub(crate) counters: Counters,
    budget: Arc<Semaphore>,
    /// Requests of the kernel that changed something.
    changes: AtomicU64,
    /// Room for contents that opens have read.
    contents: Arc<Semaphore>,
    /// Files with data in their write buffers.
    dirty: Mutex<HashMap<u64, Arc<Inode>>>,
}

/// A request that the kernel may interrupt.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) pid: u32,
    /// The request waits for a lock, which any signal ends.
    pub(crate) waits_for_lock: bool,
    pub(crate) interrupt: Arc<Notify>,
}

impl Mount {
    pub(crate) fn new(
        device: Device,
        session: Arc<Session>,
        inodes: InodeTable,
        converter: Converter,
        options: MountOptions,
        lock_freed: Arc<Notify>,
    ) -> Self {
        let sends_callers = matches!(options.security, crate::options::Security::Sys);
        let budget = Arc::new(Semaphore::new(options.dirty_max as usize / BUDGET_UNIT));
        Self {
            has_ranges: session.client.minor() >= 2,
            device,
            session,
            inodes,
            converter,
            callers: Callers::new(sends_callers, !options.checks_locally),
            options,
            directories: Mutex::default(),
            lock_freed,
            pending: Mutex::default(),
            counters: Counters::default(),
            budget,
            changes: AtomicU64::new(0),
            contents: Arc::new(Semaphore::new(CONTENTS_LEN_MAX / BUDGET_UNIT)),
            dirty: Mutex::default(),
        }
    }

    pub(crate) async fn call<F>(&self, caller: &Caller, build: F) -> Result<Reply>
    where
        F: for<'c> Fn(Compound<'c>) -> Compound<'c>,
    {
        self.session.call(caller, build).await
    }

    /// Attributes of a file, after the server has all its written data.
    pub(crate) async fn attributes(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        caller: &Caller,
    ) -> Result<(Known, Duration)> {
        self.flush(inode, false).await?;
        let is_own = inode.writes.take_written();
        let reply = self.call(caller, |c| c.putfh(&inode.handle).getattr(WANTED)).await?;
        let mut results = reply.results();
        skip(&mut results, &[vouch_nfs4::op::Op::PUTFH])?;
        let known = self.converter.next(&mut results)?;
        Ok((known, self.note(inode, &known, is_own)))
    }

    /// Keeps the kernel's cache of an open file as new as its attributes. Returns their validity.
    pub(crate) fn note(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        known: &Known,
        is_own: bool,
    ) -> Duration {
        let (valid, change) = inode.note(known, &self.options.times, is_own);
        // For each user, or because the kernel is to look up the file's names from now on.
        if change.lost_search && self.is_shared() || change.gained_links {
            drop(self.drop_names(inode.places()));
        }
        if change.is_foreign {
            // Until the kernel has dropped its pages, an open must not keep them.
            inode.drop_cache();
            tokio::spawn(self.clone().drop_pages_later(inode.clone()));
        }
        valid
    }

    /// For files that stay open: an open drops the pages itself. The kernel ignores attributes whose
    /// request was on its way when pages were dropped, and who waits for them would read with the size
    /// from before.
    async fn drop_pages_later(self: Arc<Self>, inode: Arc<Inode>) {
        tokio::time::sleep(PAGES_STAY).await;
        let _turn = inode.dropping.lock().await;
        if inode.is_cache_dropped() {
            self.drop_pages_in_turn(&inode).await;
        }
    }

    /// Pages that the kernel reads afterwards are at least of the change id before.
    pub(crate) async fn drop_pages(self: &Arc<Self>, inode: &Arc<Inode>) {
        let _turn = inode.dropping.lock().await;
        self.drop_pages_in_turn(inode).await;
    }

    async fn drop_pages_in_turn(self: &Arc<Self>, inode: &Arc<Inode>) {
        let change = inode.drop_cache();
        let (mount, node) = (self.clone(), inode.node);
        let dropped = tokio::task::spawn_blocking(move || mount.device.invalidate_pages(node));
        if dropped.await.is_ok() {
            inode.note_dropped(change);
        }
    }

    /// The kernel looks these names up again, and those below them.
    pub(crate) fn drop_names(self: &Arc<Self>, places: Vec<Place>) -> tokio::task::JoinHandle<()> {
        let mount = self.clone();
        tokio::task::spawn_blocking(move || {
            for (directory, name) in places {
                mount.device.invalidate_name(directory, &name);
            }
        })
    }

    /// The kernel may know attributes of another time than `inode`'s written data, so this entry is
    /// complete only if nothing is being written.
    pub(crate) fn entry(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        known: &Known,
        directory: &Inode,
        is_own: bool,
    ) -> Entry {
        let attr_valid = self.note(inode, known, is_own);
        let name_valid = match inode.has_links() {
            true => Duration::ZERO,
            false => directory.name_valid(self.is_shared()),
        };
        Entry { node: inode.node, name_valid, attr_valid, attr: known.attr }
    }

    /// Users with different rights use the mount, and the kernel does not tell them apart.
    pub(crate) const fn is_shared(&self) -> bool {
        self.options.allow_other && !self.options.checks_locally
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Before the kernel learns that a request is done.
    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Room for a file's content, or `None`.
    pub(crate) fn reserve_content(&self, len: usize) -> Option<OwnedSemaphorePermit> {
        let units = len.div_ceil(BUDGET_UNIT) as u32;
        self.contents.clone().try_acquire_many_owned(units).ok()
    }

    /// Room for written data. Waits until the server has taken other data.
    pub(crate) async fn reserve(self: &Arc<Self>, len: usize) -> Result<OwnedSemaphorePermit> {
        let most = self.options.dirty_max as usize / BUDGET_UNIT;
        let units = len.div_ceil(BUDGET_UNIT).clamp(1, most) as u32;
        if let Ok(permit) = self.budget.clone().try_acquire_many_owned(units) {
            return Ok(permit);
        }
        self.flush_all();
        self.budget.clone().acquire_many_owned(units).await.map_err(|_| Errno::IO)
    }

    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let most = self.options.dirty_max as usize / BUDGET_UNIT;
        (most.saturating_sub(self.budget.available_permits()) * BUDGET_UNIT) as u64
    }

    pub(crate) fn mark_dirty(&self, inode: &Arc<Inode>) {
        self.dirty.lock().entry(inode.node).or_insert_with(|| inode.clone());
    }

    /// Commits the data of all files, in the background.
    pub(crate) fn flush_all(self: &Arc<Self>) {
        for inode in std::mem::take(&mut *self.dirty.lock()).into_values() {
            let mount = self.clone();
            tokio::spawn(async move {
                if mount.flush(&inode, true).await.is_err() || !inode.writes.is_committed() {
                    mount.mark_dirty(&inode);
                }
            });
        }
    }

    /// As flush_all, and waits.
    pub(crate) async fn flush_and_wait(self: &Arc<Self>) {
        let dirty: Vec<Arc<Inode>> = self.dirty.lock().values().cloned().collect();
        for inode in dirty {
            let _ = self.flush(&inode, true).await;
        }
    }
}

pub(crate) fn skip(
    results: &mut vouch_nfs4_client::ReplyBody<'_>,
    operations: &[vouch_nfs4::op::Op],
) -> Result<()> {
    results.skip(operations).map_err(|error| crate::error::errno(&error))
}

const BUDGET_UNIT: usize = 1024;
const CONTENTS_LEN_MAX: usize = 16 << 20;
/// Much longer than the kernel takes for a reply.
const PAGES_STAY: Duration = Duration::from_millis(100);

/// Data that is not durable on the server stays at most about this time.
pub(crate) const FLUSH_PERIOD: Duration = Duration::from_secs(5);
