//! Open files, and which of them the kernel reads by itself (FUSE passthrough).
//!
//! Only where passthrough is on, or somebody observes, are opens heard of at all. The kernel
//! demands that all opens of a file at one time are of one kind, and those that pass through have
//! one backing file; this is where that is kept. What a backing file contains is verified by
//! [`vouch_tree_client`] before it is given to the kernel, here or anywhere.
//!
//! Each open that is heard of costs its caller a round trip, and the kernel can only be told to ask
//! at all opens or at none, for good. So where passthrough is to pay, what it costs is weighed
//! against what it may gain, and given up once it has cost more ([`Balance`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use fuser::{BackingId, Errno, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;
use vouch_tree::{Blob, Content};
use vouch_tree_client::WholeFile;

use crate::attr::is_brief;
use crate::config::Passthrough;
use crate::core::Core;
use crate::error::OpError;
use crate::number::NodeId;
use crate::observer::{Asked, Observed};
use crate::table::NodeView;
use crate::volume::Volume;

/// The open files of a mount.
#[derive(Default)]
pub(crate) struct Opens {
    is_on: AtomicBool,
    balance: Balance,
    files: Mutex<HashMap<NodeId, Mode>>,
}

/// What passthrough may have gained, less what opens have cost, in bytes read.
struct Balance(AtomicI64);

impl Default for Balance {
    fn default() -> Self {
        Self(AtomicI64::new(OPEN_COST_BYTES * OPENS_FREE))
    }
}

impl Balance {
    /// Books an open of a file, of `len` bytes that could pass through; false once the opens have
    /// cost more than they gain.
    fn book(&self, len: u64) -> bool {
        let gain = i64::try_from(len.min(GAIN_BYTES_MAX)).unwrap_or(i64::MAX);
        let change = |balance: i64| Some((balance + gain - OPEN_COST_BYTES).min(BALANCE_MAX));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).unwrap_or_else(|balance| balance);
        before + gain >= OPEN_COST_BYTES
    }
}

/// How a file is open.
enum Mode {
    /// So often, through the kernel's cache and our reads.
    Cached(u64),
    /// So often, read by the kernel from a backing file.
    Through(Arc<Through>, u64),
}

/// A backing file under open files.
struct Through {
    whole: tokio::sync::Mutex<WholeFile>,
    id: BackingId,
}

impl Opens {
    /// The kernel and this user can have passthrough.
    pub(crate) fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Whether opens are to be answered.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Lets the kernel not ask any more, unless it reads a file by itself just now: it refuses
    /// every open of that one that was not asked for.
    fn stop_asking(&self) {
        let files = self.files.lock();
        if self.is_on() && !files.values().any(|mode| matches!(mode, Mode::Through(..))) {
            self.is_on.store(false, Ordering::Release);
            tracing::info!("mostly small files are opened: the kernel is told not to ask any more, no file is passed through from now on");
        }
    }

    /// How many files are read by the kernel itself at the moment.
    pub(crate) fn through_count(&self) -> usize {
        self.files.lock().values().filter(|mode| matches!(mode, Mode::Through(..))).count()
    }

    /// Counts one open, of the kind that the file is open in, or that it is to be opened in.
    fn open(&self, id: NodeId, choose: impl FnOnce() -> Option<Through>) -> Option<Arc<Through>> {
        let mut files = self.files.lock();
        match files.get_mut(&id) {
            Some(Mode::Cached(count)) => *count += 1,
            Some(Mode::Through(through, count)) => {
                *count += 1;
                return Some(through.clone());
            }
            None => match choose().map(Arc::new) {
                Some(through) => {
                    files.insert(id, Mode::Through(through.clone(), 1));
                    return Some(through);
                }
                None => drop(files.insert(id, Mode::Cached(1))),
            },
        }
        None
    }

    /// Takes one open back. True if it was the last through the kernel's cache.
    fn close(&self, id: NodeId) -> bool {
        let mut files = self.files.lock();
        let (was_last, was_cached) = match files.get_mut(&id) {
            None => return false,
            Some(Mode::Cached(count)) => (std::mem::replace(count, count.saturating_sub(1)) <= 1, true),
            Some(Mode::Through(_, count)) => (std::mem::replace(count, count.saturating_sub(1)) <= 1, false),
        };
        // Dropping the mode gives the backing file back: after the lock.
        let ended = was_last.then(|| files.remove(&id)).flatten();
        drop(files);
        drop(ended);
        was_last && was_cached
    }

    fn through(&self, id: NodeId) -> Option<Arc<Through>> {
        match self.files.lock().get(&id) {
            Some(Mode::Through(through, _)) => Some(through.clone()),
            _ => None,
        }
    }

    fn all_through(&self) -> Vec<NodeId> {
        self.files.lock().iter().filter(|(_, mode)| matches!(mode, Mode::Through(..))).map(|(id, _)| *id).collect()
    }
}

impl Core {
    /// Answers an open.
    pub(crate) async fn open(self: &Arc<Self>, asked: &Asked, reply: ReplyOpen) -> Result<(), (ReplyOpen, OpError)> {
        let id = asked.id;
        let (view, volume) = match self.view(id) {
            Ok(found) => found,
            Err(error) => return Err((reply, error)),
        };
        if let Err(error) = volume.fresh(self.patience()).await {
            return Err((reply, error.into()));
        }
        let eligible = self.eligible(&view, &volume);
        // Where somebody observes, the kernel asks in any case.
        let is_weighed = self.options.passthrough == Passthrough::WhereItPays && self.observed.is_none() && self.opens.is_on();
        if is_weighed && !self.opens.balance.book(eligible.map_or(0, |blob| blob.size)) {
            self.opens.stop_asking();
        }
        let through = self.opens.open(id, || {
            if !self.opens.is_on() || self.observed.as_ref().is_some_and(Observed::counts_reads) {
                return None;
            }
            let whole = volume.tree().take_whole(eligible?)?;
            match reply.open_backing(&whole) {
                Ok(id) => Some(Through { whole: whole.into(), id }),
                Err(error) => {
                    tracing::warn!("the kernel takes no backing file: {error}; files are not passed through any more");
                    self.opens.is_on.store(false, Ordering::Release);
                    None
                }
            }
        });
        // An open that ends here, or at the deadline, is none.
        let counted = Counted { opens: &self.opens, id };
        if let Some(through) = &through
            && let Err(error) = self.bring_up(id, through).await
        {
            return Err((reply, error));
        }
        self.tell_done(asked, None).await;
        std::mem::forget(counted);
        let handle = FileHandle(self.begin_open(asked, through.is_some()));
        match through {
            None => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Some(through) => reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &through.id),
        }
        Ok(())
    }

    /// An open file was closed. Where it was the last, what is cached of it may become a backing
    /// file for the next open.
    pub(crate) fn release(self: &Arc<Self>, id: NodeId) {
        if !self.opens.close(id) {
            return;
        }
        let Ok((view, volume)) = self.view(id) else { return };
        let is_used = !self.observed.as_ref().is_some_and(Observed::counts_reads);
        if let Some(blob) = self.eligible(&view, &volume).filter(|_| is_used) {
            let (blob, tree) = (blob.clone(), volume.tree().clone());
            self.runtime.spawn(async move { tree.make_whole(&blob).await });
        }
    }

    /// Brings what is open and passes through to the revision that its nodes are of, before that is
    /// shown. What can't be fetched in time goes on behind; who opens the file meanwhile waits
    /// for it.
    pub(crate) async fn follow_opens(self: &Arc<Self>, volume: &Arc<Volume>) {
        for id in self.opens.all_through() {
            let is_ours = self.volume_of(id).is_some_and(|v| Arc::ptr_eq(&v, volume));
            let Some(through) = self.opens.through(id).filter(|_| is_ours) else { continue };
            if tokio::time::timeout(self.patience(), self.bring_up(id, &through)).await.is_ok_and(|done| done.is_ok()) {
                continue;
            }
            let core = Arc::downgrade(self);
            self.runtime.spawn(async move {
                let mut pause = PAUSE_MIN;
                loop {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    let Some(core) = core.upgrade() else { return };
                    match core.opens.through(id) {
                        Some(now) if Arc::ptr_eq(&now, &through) => {}
                        _ => return,
                    }
                    match core.bring_up(id, &through).await {
                        Ok(()) | Err(OpError::Gone) => return,
                        Err(error) => tracing::warn!("an open file can't be taken to the new revision yet: {error}"),
                    }
                }
            });
        }
    }

    /// Makes a backing file contain what its node does.
    async fn bring_up(&self, id: NodeId, through: &Through) -> Result<(), OpError> {
        let mut whole = through.whole.lock().await;
        let (view, volume) = self.view(id)?;
        let Content::Regular { blob, .. } = &view.inode.content else { return Err(OpError::Invalid) };
        if !is_brief(blob) {
            return Ok(whole.move_to(blob).await?);
        }
        let inode = self.whole(id, &view, &volume).await?;
        let Content::Regular { blob, .. } = &inode.content else { return Err(OpError::Gone) };
        Ok(whole.move_to(blob).await?)
    }

    /// The content of a file that is worth a backing file.
    fn eligible<'a>(&self, view: &'a NodeView, volume: &Volume) -> Option<&'a Blob> {
        match &view.inode.content {
            Content::Regular { blob, .. } if self.opens.is_on() && blob.size >= self.options.passthrough_len_min => {
                volume.tree().may_be_whole(blob).then_some(blob)
            }
            _ => None,
        }
    }
}

/// An open that is taken back when dropped.
struct Counted<'a> {
    opens: &'a Opens,
    id: NodeId,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.opens.close(self.id);
    }
}

/// What an open is answered where opens are not heard of: the kernel never asks again.
pub(crate) const NO_OPEN: Errno = Errno::ENOSYS;

/// What one open costs, in bytes: as many as passthrough must read to gain the time. An open of a
/// file takes 25 to 30 µs more when it is heard of, with its close; a MiB from the page cache takes
/// 130 µs less when it is passed through (benches/runs).
const OPEN_COST_BYTES: i64 = 256 << 10;

/// Opens before anything is judged: 30 ms.
const OPENS_FREE: i64 = 1024;

/// More of a file than this may not be read at all.
const GAIN_BYTES_MAX: u64 = 64 << 20;

/// So that what was gained long ago does not outweigh what is lost now: 16 Ki opens.
const BALANCE_MAX: i64 = 16 * OPEN_COST_BYTES * OPENS_FREE;

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn opens_until_it_costs(lens: impl Iterator<Item = u64>) -> usize {
        let balance = Balance::default();
        lens.take_while(|len| balance.book(*len)).count()
    }

    #[test]
    fn opens_of_small_files_end_it_and_those_of_large_ones_do_not() {
        assert_eq!(opens_until_it_costs(std::iter::repeat_n(0, 5000)), OPENS_FREE as usize);
        assert_eq!(opens_until_it_costs(std::iter::repeat_n(1 << 30, 50_000)), 50_000);
        // One of 1 MiB to three small ones is even.
        assert_eq!(opens_until_it_costs([1 << 20, 0, 0, 0].into_iter().cycle().take(50_000)), 50_000);
        assert!(opens_until_it_costs([1 << 20, 0, 0, 0, 0, 0].into_iter().cycle().take(50_000)) < 5000);
    }

    #[test]
    fn what_was_gained_long_ago_is_used_up_in_time() {
        let lens = std::iter::repeat_n(1 << 40, 100_000).chain(std::iter::repeat_n(0, 100_000));
        assert_eq!(opens_until_it_costs(lens), 100_000 + 16 * OPENS_FREE as usize);
    }
}
