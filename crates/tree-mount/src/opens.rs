//! Open files, and which of them the kernel reads by itself (FUSE passthrough).
//!
//! Only where passthrough is on are opens heard of at all. The kernel demands that all opens of a file at one time are
//! of one kind, and those that pass through have one backing file; this is where that is kept. What a backing file
//! contains is verified by [`vouch_tree_client`] before it is given to the kernel, here or anywhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::{BackingId, Errno, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;
use vouch_tree::{Blob, Content};
use vouch_tree_client::WholeFile;

use crate::attr::is_brief;
use crate::core::Core;
use crate::error::OpError;
use crate::number::NodeId;
use crate::table::NodeView;
use crate::volume::Volume;

/// The open files of a mount.
#[derive(Default)]
pub(crate) struct Opens {
    is_on: AtomicBool,
    files: Mutex<HashMap<NodeId, Mode>>,
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
    pub(crate) async fn open(self: &Arc<Self>, id: NodeId, reply: ReplyOpen) -> Result<(), (ReplyOpen, OpError)> {
        let (view, volume) = match self.view(id) {
            Ok(found) => found,
            Err(error) => return Err((reply, error)),
        };
        if let Err(error) = volume.fresh(self.patience()).await {
            return Err((reply, error.into()));
        }
        let through = self.opens.open(id, || {
            let whole = volume.tree().take_whole(self.eligible(&view, &volume)?)?;
            match reply.open_backing(&whole) {
                Ok(id) => Some(Through { whole: whole.into(), id }),
                Err(error) => {
                    tracing::warn!("the kernel takes no backing file: {error}; files are not passed through any more");
                    self.opens.is_on.store(false, Ordering::Release);
                    None
                }
            }
        });
        match through {
            None => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Some(through) => {
                // An open that ends here, or at the deadline, is none.
                let counted = Counted { opens: &self.opens, id };
                if let Err(error) = self.bring_up(id, &through).await {
                    return Err((reply, error));
                }
                std::mem::forget(counted);
                reply.opened_passthrough(FileHandle(0), FopenFlags::FOPEN_NOFLUSH, &through.id);
            }
        }
        Ok(())
    }

    /// An open file was closed. Where it was the last, what is cached of it may become a backing file for the next open.
    pub(crate) fn release(self: &Arc<Self>, id: NodeId) {
        if !self.opens.close(id) {
            return;
        }
        let Ok((view, volume)) = self.view(id) else { return };
        if let Some(blob) = self.eligible(&view, &volume) {
            let (blob, tree) = (blob.clone(), volume.tree().clone());
            self.runtime.spawn(async move { tree.make_whole(&blob).await });
        }
    }

    /// Brings what is open and passes through to the revision that its nodes are of, before that is shown. What can't be
    /// fetched in time goes on behind; who opens the file meanwhile waits for it.
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

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
