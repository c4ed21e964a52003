//! open(2) and release: passthrough of large files, and backing files under a new revision.

use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileHandle, FopenFlags, ReplyOpen};
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::{Blob, Content};

use crate::attributes::lacks_inline;
use crate::config::Passthrough;
use crate::error::OpError;
use crate::node_table::NodeView;
use crate::open_files::{OpenFiles, Through};
use crate::request::{KernelRequest, ObserverState};
use crate::state::MountState;
use crate::volume::Volume;

impl MountState {
    /// Answers an open.
    pub(crate) async fn open(self: &Arc<Self>, asked: &KernelRequest, reply: ReplyOpen) -> Result<(), (ReplyOpen, OpError)> {
        let id = asked.id;
        let (view, volume) = match self.view(id) {
            Ok(found) => found,
            Err(error) => return Err((reply, error)),
        };
        if let Err(error) = volume.fresh(self.freshness_wait_max()).await {
            return Err((reply, error.into()));
        }
        let eligible = self.eligible(&view, &volume);
        // Where somebody observes, the kernel asks in any case.
        let is_weighed = self.options.passthrough == Passthrough::Auto && self.observed.is_none() && self.open_files.is_on();
        if is_weighed && !self.open_files.balance.book(eligible.map_or(0, |blob| blob.size)) {
            self.open_files.stop_asking();
        }
        let through = self.open_files.open(id, || {
            if !self.open_files.is_on() || self.observed.as_ref().is_some_and(ObserverState::counts_reads) {
                return None;
            }
            let whole = volume.tree().take_whole_file(eligible?)?;
            match reply.open_backing(&whole) {
                Ok(id) => Some(Through { whole: whole.into(), id }),
                Err(error) => {
                    tracing::warn!("the kernel takes no backing file: {error}; files are not passed through any more");
                    self.open_files.turn_off();
                    None
                }
            }
        });
        // An open that ends here, or at the deadline, is none.
        let counted = Counted { open_files: &self.open_files, id };
        if let Some(through) = &through
            && let Err(error) = self.bring_up(id, through).await
        {
            return Err((reply, error));
        }
        self.observe_done(asked, None).await;
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
        if !self.open_files.close(id) {
            return;
        }
        let Ok((view, volume)) = self.view(id) else { return };
        let is_used = !self.observed.as_ref().is_some_and(ObserverState::counts_reads);
        if let Some(blob) = self.eligible(&view, &volume).filter(|_| is_used) {
            let (blob, tree) = (blob.clone(), volume.tree().clone());
            self.runtime.spawn(async move { tree.make_whole_file(&blob).await });
        }
    }

    /// Brings what is open and passes through to the revision that its nodes are of, before that is
    /// shown. What can't be fetched in time goes on behind; who opens the file meanwhile waits
    /// for it.
    pub(crate) async fn follow_opens(self: &Arc<Self>, volume: &Arc<Volume>) {
        for id in self.open_files.all_through() {
            let is_ours = self.volume_of(id).is_some_and(|v| Arc::ptr_eq(&v, volume));
            let Some(through) = self.open_files.through(id).filter(|_| is_ours) else { continue };
            if tokio::time::timeout(self.freshness_wait_max(), self.bring_up(id, &through)).await.is_ok_and(|done| done.is_ok()) {
                continue;
            }
            let state = Arc::downgrade(self);
            self.runtime.spawn(async move {
                let mut pause = PAUSE_MIN;
                loop {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    let Some(state) = state.upgrade() else { return };
                    match state.open_files.through(id) {
                        Some(now) if Arc::ptr_eq(&now, &through) => {}
                        _ => return,
                    }
                    match state.bring_up(id, &through).await {
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
        if !lacks_inline(blob) {
            return Ok(whole.move_to(blob).await?);
        }
        let inode = self.whole(id, &view, &volume).await?;
        let Content::Regular { blob, .. } = &inode.content else { return Err(OpError::Gone) };
        Ok(whole.move_to(blob).await?)
    }

    /// The content of a file that is worth a backing file.
    fn eligible<'a>(&self, view: &'a NodeView, volume: &Volume) -> Option<&'a Blob> {
        match &view.inode.content {
            Content::Regular { blob, .. } if self.open_files.is_on() && blob.size >= self.options.passthrough_len_min => {
                volume.tree().may_keep_whole_file(blob).then_some(blob)
            }
            _ => None,
        }
    }
}

/// An open that is taken back when dropped.
struct Counted<'a> {
    open_files: &'a OpenFiles,
    id: NodeId,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.open_files.close(self.id);
    }
}

/// What an open is answered where opens are not heard of: the kernel never asks again.
pub(crate) const NO_OPEN: Errno = Errno::ENOSYS;

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
