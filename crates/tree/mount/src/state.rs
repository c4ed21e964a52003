use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::FileAttr;
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::{Content, Inode};

use crate::attributes::attributes;
use crate::config::{MountOptions, XattrMode};
use crate::error::OpError;
use crate::error_log::ErrorLog;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::journal::record::{KernelRecord, MountRecord};
use crate::kernel_notices::KernelNotices;
use crate::late_reads::LateReads;
use crate::namespace::Namespace;
use crate::node_table::{NodeTable, NodeView};
use crate::open_files::OpenFiles;
use crate::request::ObserverState;
use crate::status::RequestCounts;
use crate::volume::{Volume, VolumeRegistry};

pub(crate) struct MountState {
    pub(crate) table: NodeTable,
    pub(crate) kernel: KernelNotices,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) options: MountOptions,
    pub(crate) error_log: ErrorLog,
    pub(crate) kind: MountKind,
    pub(crate) without_xattrs: bool,
    pub(crate) wants_passthrough: bool,
    pub(crate) open_files: OpenFiles,
    pub(crate) observed: Option<ObserverState>,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) volumes: VolumeRegistry,
    pub(crate) gate: Gate,
    /// Held for reading by each update to a newer revision.
    pub(crate) updating: Arc<RwLock<()>>,
    pub(crate) stopped_updates: Mutex<Option<OwnedRwLockWriteGuard<()>>>,
    /// FUSE_INIT and the mount's own journal record; set when the session begins.
    pub(crate) mount_record: OnceLock<MountRecord>,
    pub(crate) device: OnceLock<Arc<OwnedFd>>,
    pub(crate) kernel_offer: OnceLock<KernelRecord>,
    pub(crate) request_counts: RequestCounts,
    pub(crate) late_reads: LateReads,
}

pub(crate) enum MountKind {
    Tree(Arc<Volume>),
    Namespace(Box<Namespace>),
}

pub(crate) enum LookupResult {
    File(FileAttr, Duration),
    /// Proven; with the time for which the kernel may cache it.
    Nothing(Duration),
}

/// Of a published tree.
pub(crate) struct FreshFile {
    pub(crate) view: NodeView,
    pub(crate) volume: Arc<Volume>,
    /// Until the revision expires.
    pub(crate) left: Duration,
}

impl MountState {
    pub(crate) fn volume_of(&self, id: NodeId) -> Option<Arc<Volume>> {
        self.table.get(id).and_then(|view| view.volume)
    }

    /// Ends before the request does, so that the error says why no revision is valid.
    pub(crate) fn freshness_wait_max(&self) -> Duration {
        let deadline = self.options.deadline;
        deadline.saturating_sub(Duration::from_secs(1)).max(deadline / 2)
    }

    pub(crate) fn view(&self, id: NodeId) -> Result<(NodeView, Arc<Volume>), OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        match view.volume.clone() {
            _ if view.is_removed => Err(OpError::Gone),
            Some(volume) => Ok((view, volume)),
            None => Err(OpError::Invalid),
        }
    }

    /// The file in a revision that is valid, and for how long it is. The one check of a request.
    pub(crate) async fn fresh_node(&self, id: NodeId) -> Result<(NodeView, Duration), OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        if view.is_removed {
            return Err(OpError::Gone);
        }
        let left = match &view.volume {
            Some(volume) => volume.wait_until_fresh(self.freshness_wait_max()).await?,
            None => Namespace::TTL,
        };
        Ok((view, left))
    }

    pub(crate) async fn fresh_file(&self, id: NodeId) -> Result<FreshFile, OpError> {
        let (view, left) = self.fresh_node(id).await?;
        let volume = view.volume.clone().ok_or(OpError::Invalid)?;
        Ok(FreshFile { view, volume, left })
    }

    /// A later file with attributes may have an ACL: only its owner has access.
    pub(crate) fn attributes_of(&self, id: NodeId, inode: &Inode) -> FileAttr {
        let mut flush = attributes(id, inode);
        if self.without_xattrs && self.options.xattrs == XattrMode::Auto && inode.xattrs.size > 0 {
            flush.perm &= !0o077;
        }
        flush
    }

    pub(crate) async fn full_inode(
        &self,
        id: NodeId,
        view: &NodeView,
        volume: &Arc<Volume>,
    ) -> Result<Inode, OpError> {
        if id == volume.root() {
            return Ok(volume.shown().root().clone());
        }
        let (parent, name) = self.table.path(id).ok_or(OpError::Gone)?;
        let directory = self.table.get(parent).ok_or(OpError::Gone)?.inode;
        let entry = match volume.tree().try_lookup(&directory, &name) {
            Some(entry) => entry?,
            None => volume.tree().lookup(&directory, &name).await?,
        };
        // The directory may already be of a newer revision.
        let entry =
            entry.filter(|e| e.inode.file_type() == view.inode.file_type()).ok_or(OpError::Gone)?;
        Ok(entry.inode.clone())
    }
}

pub(crate) const fn is_opaque(directory: &Inode) -> bool {
    matches!(directory.content, Content::Directory { opaque: true, .. })
}
