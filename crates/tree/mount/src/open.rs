//! Open, release, passthrough, and backing files under a new revision.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileHandle, FopenFlags, ReplyOpen};
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::{Blob, Content};

use crate::attributes::lacks_inline;
use crate::config::Passthrough;
use crate::error::OpError;
use crate::fuse_device::Backing;
use crate::node_table::NodeView;
use crate::open_files::{BackingFile, OpenFiles};
use crate::request::{KernelRequest, ObserverState};
use crate::state::{FreshFile, MountState};
use crate::volume::Volume;

impl MountState {
    pub(crate) async fn open(
        self: &Arc<Self>,
        request: &KernelRequest,
        reply: ReplyOpen,
    ) -> Result<(), (ReplyOpen, OpError)> {
        let id = request.id;
        let FreshFile { view, volume, .. } = match self.fresh_file(id).await {
            Ok(file) => file,
            Err(error) => return Err((reply, error)),
        };
        let candidate = self.passthrough_blob(&view, &volume);
        // With an observer, open requests are needed anyway.
        let is_auto = self.options.passthrough == Passthrough::Auto
            && self.observed.is_none()
            && self.open_files.is_on();
        if is_auto && !self.open_files.balance.count_open(candidate.map_or(0, |blob| blob.size)) {
            self.open_files.turn_off_if_unused();
        }
        let backing = self.open_files.open(id, || {
            if !self.open_files.is_on()
                || self.observed.as_ref().is_some_and(ObserverState::counts_reads)
            {
                return None;
            }
            let whole = volume.tree().take_whole_file(candidate?)?;
            match self
                .device
                .get()
                .ok_or_else(|| ErrorKind::NotConnected.into())
                .and_then(|device| Backing::open(device, &whole))
            {
                Ok(id) => Some(BackingFile::new(whole, id)),
                Err(error) => {
                    tracing::warn!(
                        "the kernel refuses a backing file: {error}; passthrough is off"
                    );
                    self.open_files.turn_off();
                    None
                }
            }
        });
        let guard = OpenGuard { open_files: &self.open_files, id };
        if let Some(backing) = &backing
            && let Err(error) = self.update_backing_file(id, backing).await
        {
            return Err((reply, error));
        }
        self.observe_done(request, None).await;
        std::mem::forget(guard);
        let handle = FileHandle(self.start_open_file(request, backing.is_some()));
        match backing {
            None => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH),
            Some(backing) => backing.id.reply(reply, handle, FopenFlags::FOPEN_NOFLUSH),
        }
        Ok(())
    }

    /// After the last close, cached data may become a backing file.
    pub(crate) fn release(self: &Arc<Self>, id: NodeId) {
        if !self.open_files.close(id) {
            return;
        }
        let Ok((view, volume)) = self.view(id) else { return };
        let is_used = !self.observed.as_ref().is_some_and(ObserverState::counts_reads);
        if let Some(blob) = self.passthrough_blob(&view, &volume).filter(|_| is_used) {
            let (blob, tree) = (blob.clone(), volume.tree().clone());
            self.runtime.spawn(async move { tree.make_whole_file(&blob).await });
        }
    }

    /// Called before the new revision is shown. Long updates continue in the background; opens of
    /// the file wait.
    pub(crate) async fn update_open_files(self: &Arc<Self>, volume: &Arc<Volume>) {
        for id in self.open_files.all_passthrough() {
            let is_ours = self.volume_of(id).is_some_and(|v| Arc::ptr_eq(&v, volume));
            let Some(backing) = self.open_files.backing(id).filter(|_| is_ours) else { continue };
            if tokio::time::timeout(
                self.freshness_wait_max(),
                self.update_backing_file(id, &backing),
            )
            .await
            .is_ok_and(|done| done.is_ok())
            {
                continue;
            }
            let state = Arc::downgrade(self);
            self.runtime.spawn(async move {
                let mut pause = PAUSE_MIN;
                loop {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    let Some(state) = state.upgrade() else { return };
                    match state.open_files.backing(id) {
                        Some(now) if Arc::ptr_eq(&now, &backing) => {}
                        _ => return,
                    }
                    match state.update_backing_file(id, &backing).await {
                        Ok(()) | Err(OpError::Gone) => return,
                        Err(error) => tracing::warn!(
                            "cannot update an open file to the new revision yet: {error}"
                        ),
                    }
                }
            });
        }
    }

    async fn update_backing_file(&self, id: NodeId, backing: &BackingFile) -> Result<(), OpError> {
        let mut whole = backing.whole.lock().await;
        let (view, volume) = self.view(id)?;
        let Content::Regular { blob, .. } = &view.inode.content else {
            return Err(OpError::Invalid);
        };
        let Some(whole) = &mut *whole else {
            let lost = OpError::Unfit(
                "its copy in the disk cache is lost, and a program still reads it; close the file everywhere",
            );
            return if *blob == backing.blob { Ok(()) } else { Err(lost) };
        };
        if !lacks_inline(blob) {
            return Ok(whole.move_to(blob).await?);
        }
        let inode = self.full_inode(id, &view, &volume).await?;
        let Content::Regular { blob, .. } = &inode.content else { return Err(OpError::Gone) };
        Ok(whole.move_to(blob).await?)
    }

    fn passthrough_blob<'a>(&self, view: &'a NodeView, volume: &Volume) -> Option<&'a Blob> {
        match &view.inode.content {
            Content::Regular { blob, .. }
                if self.open_files.is_on() && blob.size >= self.options.passthrough_len_min =>
            {
                volume.tree().may_keep_whole_file(blob).then_some(blob)
            }
            _ => None,
        }
    }
}

struct OpenGuard<'a> {
    open_files: &'a OpenFiles,
    id: NodeId,
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.open_files.close(self.id);
    }
}

pub(crate) const NO_OPEN: Errno = Errno::ENOSYS;

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
