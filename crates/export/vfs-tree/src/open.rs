//! Follows its path through revisions, like the mount, and reads ahead.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use vouch_tree::{Blob, BlobBody, Content as TreeContent, LEAF_LEN_MAX};
use vouch_tree_client::{FileReader, Seek};
use vouch_vfs::{
    Advice, Attributes, Blocking, Content, Error, FileId, OpenAccess, OpenFile, ReadInto, Result,
    SeekTarget, Stability, Written,
};

use crate::core::{CallContext, Core};
use crate::node::{Node, has_content_hash};

pub(crate) struct TreeOpen {
    core: Arc<Core>,
    id: FileId,
    content: Mutex<Option<Known>>,
}

#[derive(Clone)]
struct Known {
    change: u64,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Blob(Arc<Blob>),
    Large(Arc<FileReader>),
}

impl TreeOpen {
    pub(crate) fn new(core: Arc<Core>, id: FileId) -> Self {
        TreeOpen { core, id, content: Mutex::default() }
    }

    fn source(&self, call: &CallContext<'_>, node: &Node) -> Result<Source> {
        if let Some(known) =
            self.content.lock().as_ref().filter(|known| known.change == node.change)
        {
            return Ok(known.source.clone());
        }
        let TreeContent::Regular { blob, .. } = &node.inode.content else {
            return Err(Error::Stale);
        };
        let source = if blob.size > LEAF_LEN_MAX as u64 && !matches!(blob.body, BlobBody::Hole) {
            Source::Large(Arc::new(self.core.tree.open_file(blob.clone())))
        } else if has_content_hash(blob) {
            let TreeContent::Regular { blob, .. } = call.whole(node)?.content else {
                return Err(Error::Stale);
            };
            Source::Blob(Arc::new(blob))
        } else {
            Source::Blob(Arc::new(blob.clone()))
        };
        *self.content.lock() = Some(Known { change: node.change, source: source.clone() });
        Ok(source)
    }
}

impl Source {
    fn size(&self) -> u64 {
        match self {
            Source::Blob(blob) => blob.size,
            Source::Large(reader) => reader.blob().size,
        }
    }

    fn read(&self, call: &CallContext<'_>, offset: u64, len: usize) -> Result<Bytes> {
        match self {
            Source::Blob(blob) => {
                let tree = &call.core.tree;
                call.answer(tree.try_read(blob, offset, len), || tree.read(blob, offset, len))
            }
            Source::Large(reader) => {
                call.answer(reader.try_read(offset, len), || reader.read(offset, len))
            }
        }
    }
}

impl OpenFile for TreeOpen {
    fn access(&self) -> OpenAccess {
        OpenAccess { read: true, write: false }
    }

    fn attributes(&self) -> Result<Attributes> {
        self.core.with(Blocking::Allowed, |call| Ok(self.core.attributes(&*call.node(&self.id)?)))
    }

    fn read(
        &self,
        offset: u64,
        len: usize,
        into: ReadInto<'_>,
        blocking: Blocking,
    ) -> Result<Content> {
        let (bytes, size) = self.core.with(blocking, |call| {
            let source = self.source(call, &*call.node(&self.id)?)?;
            Ok((source.read(call, offset, len)?, source.size()))
        })?;
        into.bytes.extend_from_slice(&bytes);
        Ok(Content::Bytes {
            len: bytes.len(),
            eof: offset.saturating_add(bytes.len() as u64) >= size,
        })
    }

    fn write(
        &self,
        _offset: u64,
        _data: &[u8],
        _stability: Stability,
        _blocking: Blocking,
    ) -> Result<Written> {
        Err(Error::Access)
    }

    fn commit(&self, _offset: u64, _len: u64, _blocking: Blocking) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> Result<()> {
        Err(Error::Access)
    }

    fn seek(&self, offset: u64, target: SeekTarget) -> Result<u64> {
        let seek = match target {
            SeekTarget::Data => Seek::Data,
            SeekTarget::Hole => Seek::Hole,
        };
        self.core.with(Blocking::Allowed, |call| {
            let node = call.node(&self.id)?;
            let TreeContent::Regular { blob, .. } = &node.inode.content else {
                return Err(Error::Stale);
            };
            call.answer(None, || self.core.tree.seek(blob, offset, seek))?
                .ok_or(Error::NoSuchRegion)
        })
    }

    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(Error::Access)
    }

    fn deallocate(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(Error::Access)
    }

    fn advise(&self, _offset: u64, _len: u64, _advice: Advice) {}

    fn copy_from(
        &self,
        _from: &dyn OpenFile,
        _from_offset: u64,
        _offset: u64,
        _len: u64,
    ) -> Result<u64> {
        Err(Error::Access)
    }

    fn clone_range(
        &self,
        _from: &dyn OpenFile,
        _from_offset: u64,
        _offset: u64,
        _len: u64,
    ) -> Result<()> {
        Err(Error::Access)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
