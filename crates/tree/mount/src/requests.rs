//! The first poll, on the FUSE thread, answers from memory and disk cache unless a frame must be
//! fetched. No request blocks a thread; each await is bounded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fuser::FileAttr;
use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::xattr::Xattrs;
use vouch_tree::{BlobBody, Content, Inode, LEAF_LEN_MAX};
use vouch_tree_client::{Error, Seek};

use crate::attributes::lacks_inline;
use crate::error::OpError;
use crate::kernel_notices::Notice;
use crate::node_table::DirectoryChanged;
use crate::state::{FreshFile, LookupResult, MountKind, MountState, is_opaque};
use crate::volume::Volume;

type NameIn = (NodeId, Box<[u8]>);

impl MountState {
    pub(crate) async fn lookup(
        self: &Arc<Self>,
        directory: NodeId,
        name: &[u8],
    ) -> Result<LookupResult, OpError> {
        if let (MountKind::Namespace(namespace), NodeId::ROOT) = (&self.kind, directory) {
            return namespace.lookup(self, name).await;
        }
        self.retrying_in_newer(directory, || self.lookup_once(directory, name)).await
    }

    async fn lookup_once(&self, directory: NodeId, name: &[u8]) -> Result<LookupResult, OpError> {
        for _ in 0..RETRIES_MAX {
            let FreshFile { view, volume, left } = self.fresh_file(directory).await?;
            if !view.inode.is_directory() {
                return Err(OpError::NotDirectory);
            }
            let entry = match volume.tree().try_lookup(&view.inode, name) {
                Some(entry) => entry?,
                None => {
                    self.read_ahead_beside(directory, &volume);
                    volume.tree().lookup(&view.inode, name).await?
                }
            };
            let Some(entry) = entry else {
                let Ok(let_go) = self.note_missing(directory, &view.inode, &volume, name) else {
                    continue;
                };
                if let Some((directory, name)) = let_go {
                    self.kernel.send(Notice::Name(directory, name));
                }
                return Ok(LookupResult::Nothing(left));
            };
            let Ok(id) = self
                .table
                .lock_directory(directory, &view.inode)
                .map(|mut guard| guard.insert(name, &entry.inode))
            else {
                continue;
            };
            let id = id.ok_or(OpError::Unfit("too many inode numbers collide"))?;
            if is_opaque(&view.inode) && volume.note_reference(directory, name) {
                self.kernel.send(Notice::Content(directory));
                self.kernel.flush().await;
            }
            return Ok(LookupResult::File(self.attributes_of(id, &entry.inode), left));
        }
        Err(OpError::Unfit("the directory changes faster than it can be read"))
    }

    /// Also returns the time for which the kernel may cache them.
    pub(crate) async fn attributes(&self, id: NodeId) -> Result<(FileAttr, Duration), OpError> {
        let (view, left) = self.fresh_node(id).await?;
        Ok((self.attributes_of(id, &view.inode), left))
    }

    pub(crate) async fn link_target(&self, id: NodeId) -> Result<Vec<u8>, OpError> {
        let (view, _) = self.fresh_node(id).await?;
        match &view.inode.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(OpError::Invalid),
        }
    }

    pub(crate) async fn read(&self, id: NodeId, offset: u64, len: usize) -> Result<Bytes, OpError> {
        self.retrying_in_newer(id, || self.read_once(id, offset, len)).await
    }

    async fn read_once(&self, id: NodeId, offset: u64, len: usize) -> Result<Bytes, OpError> {
        let FreshFile { view, volume, .. } = self.fresh_file(id).await?;
        let Content::Regular { blob, .. } = &view.inode.content else {
            return Err(OpError::Invalid);
        };
        if blob.size > LEAF_LEN_MAX as u64 && !matches!(blob.body, BlobBody::Hole) {
            let reader = volume.reader(id, blob);
            return Ok(match reader.try_read(offset, len) {
                Some(bytes) => bytes?,
                None => {
                    if offset == 0 {
                        self.read_ahead_beside(id, &volume);
                    }
                    reader.read(offset, len).await?
                }
            });
        }
        if lacks_inline(blob) {
            let whole = self.full_inode(id, &view, &volume).await?;
            let Content::Regular { blob, .. } = &whole.content else { return Err(OpError::Gone) };
            return Ok(volume.tree().read(blob, offset, len).await?);
        }
        match volume.tree().try_read(blob, offset, len) {
            Some(bytes) => Ok(bytes?),
            None => {
                self.read_ahead_beside(id, &volume);
                Ok(volume.tree().read(blob, offset, len).await?)
            }
        }
    }

    /// The node's first frame must be fetched: fetches those of its neighbours too.
    pub(crate) fn read_ahead_beside(&self, id: NodeId, volume: &Volume) {
        if let Some((directory, name)) = self.table.path(id)
            && let Some(directory) = self.table.get(directory)
        {
            volume.tree().read_ahead_beside(&directory.inode, &name);
        }
    }

    pub(crate) async fn seek(&self, id: NodeId, offset: u64, whence: Seek) -> Result<u64, OpError> {
        self.retrying_in_newer(id, || self.seek_once(id, offset, whence)).await
    }

    async fn seek_once(&self, id: NodeId, offset: u64, whence: Seek) -> Result<u64, OpError> {
        let FreshFile { view, volume, .. } = self.fresh_file(id).await?;
        let Content::Regular { blob, .. } = &view.inode.content else {
            return Err(OpError::Invalid);
        };
        if let BlobBody::Inline(_) = blob.body {
            return match whence {
                _ if offset >= blob.size => Err(OpError::NoOffset),
                Seek::Data => Ok(offset),
                Seek::Hole => Ok(blob.size),
            };
        }
        volume.tree().seek(blob, offset, whence).await?.ok_or(OpError::NoOffset)
    }

    pub(crate) async fn xattrs(&self, id: NodeId) -> Result<Arc<Xattrs>, OpError> {
        self.retrying_in_newer(id, || self.xattrs_once(id)).await
    }

    async fn xattrs_once(&self, id: NodeId) -> Result<Arc<Xattrs>, OpError> {
        let (view, _) = self.fresh_node(id).await?;
        let Some(volume) = &view.volume else { return Ok(Arc::default()) };
        if view.inode.xattrs.size == 0 {
            return Ok(Arc::default());
        }
        let whole;
        let inode = if lacks_inline(&view.inode.xattrs) {
            whole = self.full_inode(id, &view, volume).await?;
            &whole
        } else {
            &*view.inode
        };
        Ok(match volume.tree().try_xattrs(inode) {
            Some(xattrs) => xattrs?,
            None => volume.tree().xattrs(inode).await?,
        })
    }

    async fn retrying_in_newer<T, W: Future<Output = Result<T, OpError>>>(
        &self,
        id: NodeId,
        work: impl Fn() -> W,
    ) -> Result<T, OpError> {
        let order = self.volume_of(id).map(|volume| volume.shown().order());
        match work().await {
            Err(OpError::Client(error @ Error::Missing { .. })) => {
                match (order, self.volume_of(id)) {
                    (Some(order), Some(volume))
                        if volume.wait_for_newer(order, self.freshness_wait_max()).await =>
                    {
                        work().await
                    }
                    _ => Err(error.into()),
                }
            }
            done => done,
        }
    }

    fn note_missing(
        &self,
        directory: NodeId,
        seen: &Arc<Inode>,
        volume: &Volume,
        name: &[u8],
    ) -> Result<Option<NameIn>, DirectoryChanged> {
        let _entering = self.table.lock_directory(directory, seen)?;
        Ok(volume.note_missing(directory, name))
    }
}

const RETRIES_MAX: usize = 16;
