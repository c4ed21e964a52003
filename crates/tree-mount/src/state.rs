//! State of one mount, shared by all requests.

use std::sync::Arc;
use std::time::Duration;

use fuser::FileAttr;
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::{Content, Inode};

use crate::attributes::attributes;
use crate::config::{MountOptions, XattrMode};
use crate::error::OpError;
use crate::error_log::ErrorLog;
use crate::kernel_notices::KernelNotices;
use crate::namespace::Namespace;
use crate::node_table::{NodeTable, NodeView};
use crate::open_files::OpenFiles;
use crate::request::ObserverState;
use crate::volume::Volume;

/// A mount's state.
pub(crate) struct MountState {
    pub(crate) table: NodeTable,
    pub(crate) kernel: KernelNotices,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) options: MountOptions,
    pub(crate) error_log: ErrorLog,
    pub(crate) kind: MountKind,
    /// The kernel has been told that there are no extended attributes.
    pub(crate) without_xattrs: bool,
    /// Passthrough is chosen, and all but the kernel's word speaks for it.
    pub(crate) wants_passthrough: bool,
    pub(crate) open_files: OpenFiles,
    /// Who sees what is done.
    pub(crate) observed: Option<ObserverState>,
}

/// What is mounted.
pub(crate) enum MountKind {
    /// One tree, whose root is the mount's.
    Tree(Arc<Volume>),
    /// Trees by their names.
    Namespace(Namespace),
}

/// The answer to a lookup.
pub(crate) enum LookupResult {
    /// These attributes, for so long.
    File(FileAttr, Duration),
    /// Proven missing, for so long.
    Nothing(Duration),
}

impl MountState {
    /// The tree that a node belongs to; `None` for the namespace itself.
    pub(crate) fn volume_of(&self, id: NodeId) -> Option<Arc<Volume>> {
        self.table.get(id).and_then(|view| view.volume)
    }

    /// How long a request may wait for a fresh revision before it looks at files at all.
    pub(crate) fn freshness_wait_max(&self) -> Duration {
        self.options.deadline / 2
    }

    /// A node that exists, and its tree.
    pub(crate) fn view(&self, id: NodeId) -> Result<(NodeView, Arc<Volume>), OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        match view.volume.clone() {
            _ if view.is_removed => Err(OpError::Gone),
            Some(volume) => Ok((view, volume)),
            None => Err(OpError::Invalid),
        }
    }

    /// What the kernel is told of a file. Where it was told that there are no extended attributes
    /// and a later revision brings some, an ACL may be among them that the kernel would not
    /// heed: until the next mount such a file is its owner's alone.
    pub(crate) fn attributes_of(&self, id: NodeId, inode: &Inode) -> FileAttr {
        let mut flush = attributes(id, inode);
        if self.without_xattrs && self.options.xattrs == XattrMode::Auto && inode.xattrs.size > 0 {
            flush.perm &= !0o077;
        }
        flush
    }

    /// The inode with the bytes that the table leaves out, from its directory's page or the fsinfo.
    pub(crate) async fn whole(&self, id: NodeId, view: &NodeView, volume: &Arc<Volume>) -> Result<Inode, OpError> {
        if id == volume.root() {
            return Ok(volume.shown().root().clone());
        }
        let (parent, name) = self.table.path(id).ok_or(OpError::Gone)?;
        let directory = self.table.get(parent).ok_or(OpError::Gone)?.inode;
        let entry = match volume.tree().try_lookup(&directory, &name) {
            Some(entry) => entry?,
            None => volume.tree().lookup(&directory, &name).await?,
        };
        // The directory may have been taken over to a newer revision a moment before the file is.
        let entry = entry.filter(|e| e.inode.file_type() == view.inode.file_type()).ok_or(OpError::Gone)?;
        Ok(entry.inode.clone())
    }
}

/// Whether the directory lists only what has been referred to.
pub(crate) const fn is_opaque(directory: &Inode) -> bool {
    matches!(directory.content, Content::Directory { opaque: true, .. })
}
