//! What all requests share, and the requests about one file: lookup, attributes, content, links,
//! extended attributes.
//!
//! Each is one async function that first tries what the client holds, so that its first poll, on
//! the FUSE thread, answers if nothing must be fetched (see [`crate::face`]). Never blocks; each
//! await ends in bounded time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fuser::FileAttr;
use vouch_tree::xattr::Xattrs;
use vouch_tree::{Blob, BlobBody, Content, Inode, LEAF_LEN_MAX};
use vouch_tree_client::{Error, Seek};

use crate::attr::{attributes, is_brief};
use crate::complaint::Complaints;
use crate::config::{MountOptions, XattrMode};
use crate::error::OpError;
use crate::kernel::{Kernel, Notice};
use crate::namespace::Namespace;
use crate::number::NodeId;
use crate::observer::Observed;
use crate::opens::Opens;
use crate::table::{Moved, NodeView, Table};
use crate::volume::Volume;

/// A name in a directory.
type NameIn = (NodeId, Box<[u8]>);

/// A mount's state.
pub(crate) struct Core {
    pub(crate) table: Table,
    pub(crate) kernel: Kernel,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) options: MountOptions,
    pub(crate) complaints: Complaints,
    pub(crate) shape: Shape,
    /// The kernel has been told that there are no extended attributes.
    pub(crate) without_xattrs: bool,
    /// Passthrough is chosen, and all but the kernel's word speaks for it.
    pub(crate) wants_passthrough: bool,
    pub(crate) opens: Opens,
    /// Who sees what is done.
    pub(crate) observed: Option<Observed>,
}

/// What is mounted.
pub(crate) enum Shape {
    /// One tree, whose root is the mount's.
    Tree(Arc<Volume>),
    /// Trees by their names.
    Namespace(Namespace),
}

/// The answer to a lookup.
pub(crate) enum Found {
    /// These attributes, for so long.
    File(FileAttr, Duration),
    /// Proven missing, for so long.
    Nothing(Duration),
}

impl Core {
    /// Looks `name` up in a directory; counts a lookup of what it finds.
    pub(crate) async fn lookup(self: &Arc<Self>, directory: NodeId, name: &[u8]) -> Result<Found, OpError> {
        if let (Shape::Namespace(namespace), NodeId::ROOT) = (&self.shape, directory) {
            return namespace.lookup(self, name).await;
        }
        self.following(directory, || self.lookup_shown(directory, name)).await
    }

    async fn lookup_shown(&self, directory: NodeId, name: &[u8]) -> Result<Found, OpError> {
        for _ in 0..LOOKS_MAX {
            let (view, volume) = self.view(directory)?;
            let left = volume.fresh(self.patience()).await?;
            if !view.inode.is_directory() {
                return Err(OpError::NotDirectory);
            }
            let entry = match volume.tree().try_lookup(&view.inode, name) {
                Some(entry) => entry?,
                None => volume.tree().lookup(&view.inode, name).await?,
            };
            let Some(entry) = entry else {
                let Ok(let_go) = self.note_missing(directory, &view.inode, &volume, name) else { continue };
                if let Some((directory, name)) = let_go {
                    self.kernel.tell(Notice::Name(directory, name));
                }
                return Ok(Found::Nothing(left));
            };
            let Ok(id) = self.table.enter(directory, &view.inode).map(|mut entering| entering.insert(name, &entry.inode)) else { continue };
            let id = id.ok_or(OpError::Unfit("too many inode numbers collide"))?;
            if is_opaque(&view.inode) && volume.refer(directory, name) {
                self.kernel.tell(Notice::Content(directory));
                self.kernel.told().await;
            }
            return Ok(Found::File(self.attributes_of(id, &entry.inode), left));
        }
        Err(OpError::Unfit("the directory changes faster than it can be read"))
    }

    /// The attributes of a node, and for how long.
    pub(crate) async fn attributes(&self, id: NodeId) -> Result<(FileAttr, Duration), OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        let left = match &view.volume {
            Some(volume) => volume.fresh(self.patience()).await?,
            None => Namespace::TTL,
        };
        if view.gone {
            return Err(OpError::Gone);
        }
        Ok((self.attributes_of(id, &view.inode), left))
    }

    /// The target of a symbolic link.
    pub(crate) async fn link_target(&self, id: NodeId) -> Result<Vec<u8>, OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        if let Some(volume) = &view.volume {
            volume.fresh(self.patience()).await?;
        }
        match &view.inode.content {
            _ if view.gone => Err(OpError::Gone),
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(OpError::Invalid),
        }
    }

    /// Up to `len` bytes of a file; fewer only at its end.
    pub(crate) async fn read(&self, id: NodeId, offset: u64, len: usize) -> Result<Bytes, OpError> {
        self.following(id, || self.read_shown(id, offset, len)).await
    }

    async fn read_shown(&self, id: NodeId, offset: u64, len: usize) -> Result<Bytes, OpError> {
        let (view, volume) = self.view(id)?;
        volume.fresh(self.patience()).await?;
        let Content::Regular { blob, .. } = &view.inode.content else { return Err(OpError::Invalid) };
        if blob.size > LEAF_LEN_MAX as u64 && !matches!(blob.body, BlobBody::Hole) {
            let reader = volume.reader(id, blob);
            return Ok(match reader.try_read(offset, len) {
                Some(bytes) => bytes?,
                None => reader.read(offset, len).await?,
            });
        }
        if is_brief(blob) {
            let whole = self.whole(id, &view, &volume).await?;
            let Content::Regular { blob, .. } = &whole.content else { return Err(OpError::Gone) };
            return read_blob(&volume, blob, offset, len).await;
        }
        read_blob(&volume, blob, offset, len).await
    }

    /// Where data or a hole begins, from `offset` on.
    pub(crate) async fn seek(&self, id: NodeId, offset: u64, whence: Seek) -> Result<u64, OpError> {
        self.following(id, || self.seek_shown(id, offset, whence)).await
    }

    async fn seek_shown(&self, id: NodeId, offset: u64, whence: Seek) -> Result<u64, OpError> {
        let (view, volume) = self.view(id)?;
        volume.fresh(self.patience()).await?;
        let Content::Regular { blob, .. } = &view.inode.content else { return Err(OpError::Invalid) };
        if let BlobBody::Inline(_) = blob.body {
            return match whence {
                _ if offset >= blob.size => Err(OpError::NoOffset),
                Seek::Data => Ok(offset),
                Seek::Hole => Ok(blob.size),
            };
        }
        volume.tree().seek(blob, offset, whence).await?.ok_or(OpError::NoOffset)
    }

    /// A node's extended attributes.
    pub(crate) async fn xattrs(&self, id: NodeId) -> Result<Arc<Xattrs>, OpError> {
        self.following(id, || self.xattrs_shown(id)).await
    }

    async fn xattrs_shown(&self, id: NodeId) -> Result<Arc<Xattrs>, OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        let Some(volume) = &view.volume else { return Ok(Arc::default()) };
        volume.fresh(self.patience()).await?;
        if view.gone {
            return Err(OpError::Gone);
        }
        if view.inode.xattrs.size == 0 {
            return Ok(Arc::default());
        }
        let whole;
        let inode = if is_brief(&view.inode.xattrs) {
            whole = self.whole(id, &view, volume).await?;
            &whole
        } else {
            &*view.inode
        };
        Ok(match volume.tree().try_xattrs(inode) {
            Some(xattrs) => xattrs?,
            None => volume.tree().xattrs(inode).await?,
        })
    }

    /// What the kernel is told of a file. Where it was told that there are no extended attributes
    /// and a later revision brings some, an ACL may be among them that the kernel would not
    /// heed: until the next mount such a file is its owner's alone.
    pub(crate) fn attributes_of(&self, id: NodeId, inode: &Inode) -> FileAttr {
        let mut told = attributes(id, inode);
        if self.without_xattrs && self.options.xattrs == XattrMode::Auto && inode.xattrs.size > 0 {
            told.perm &= !0o077;
        }
        told
    }

    /// Does `work` on a node; where all replicas have dropped what it needs, once more in the
    /// revision that they have gone on to.
    async fn following<T, W: Future<Output = Result<T, OpError>>>(&self, id: NodeId, work: impl Fn() -> W) -> Result<T, OpError> {
        let order = self.volume_of(id).map(|volume| volume.shown().order());
        match work().await {
            Err(OpError::Client(error @ Error::Missing { .. })) => match (order, self.volume_of(id)) {
                (Some(order), Some(volume)) if volume.moves_on(order, self.patience()).await => work().await,
                _ => Err(error.into()),
            },
            done => done,
        }
    }

    /// Remembers a missing name, in step with the directory's version; returns one that the kernel
    /// must forget for it.
    fn note_missing(&self, directory: NodeId, seen: &Arc<Inode>, volume: &Volume, name: &[u8]) -> Result<Option<NameIn>, Moved> {
        let _entering = self.table.enter(directory, seen)?;
        Ok(volume.negatives.lock().insert(directory, name))
    }

    /// The tree that a node belongs to; `None` for the namespace itself.
    pub(crate) fn volume_of(&self, id: NodeId) -> Option<Arc<Volume>> {
        self.table.get(id).and_then(|view| view.volume)
    }

    /// How long a request may wait for a fresh revision before it looks at files at all.
    pub(crate) fn patience(&self) -> Duration {
        self.options.deadline / 2
    }

    /// A node that exists, and its tree.
    pub(crate) fn view(&self, id: NodeId) -> Result<(NodeView, Arc<Volume>), OpError> {
        let view = self.table.get(id).ok_or(OpError::Gone)?;
        match view.volume.clone() {
            _ if view.gone => Err(OpError::Gone),
            Some(volume) => Ok((view, volume)),
            None => Err(OpError::Invalid),
        }
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

async fn read_blob(volume: &Volume, blob: &Blob, offset: u64, len: usize) -> Result<Bytes, OpError> {
    Ok(match volume.tree().try_read(blob, offset, len) {
        Some(bytes) => bytes?,
        None => volume.tree().read(blob, offset, len).await?,
    })
}

/// A directory that moves on so often between reading and entering is being published faster than
/// it is read.
const LOOKS_MAX: usize = 16;
