use std::sync::Arc;

use bytes::Bytes;
use vouch_tree::blob::Indirect;
use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_tree::{BlockHandle, FrameKind, frame};
use vouch_xdr::Xdr;

use crate::{Error, Result};

#[derive(Debug, Clone)]
pub(crate) enum Frame {
    Leaf(Bytes),
    Indirect(Arc<Indirect>),
    DirLeaf(Arc<LeafPage>),
    DirInterior(Arc<InteriorPage>),
    /// The signature is not verified.
    Fsinfo(Bytes),
}

impl Frame {
    /// A raw leaf keeps all of `stored` alive. An error is the publisher's fault.
    pub(crate) fn decode(kind: FrameKind, handle: &BlockHandle, stored: &Bytes) -> Result<Self> {
        let payload = frame::payload(kind, stored).map_err(|e| Error::frame(handle, e))?;
        let malformed = |e| Error::malformed(handle, e);
        Ok(match kind {
            FrameKind::Leaf | FrameKind::Fsinfo => {
                let bytes = match payload {
                    std::borrow::Cow::Owned(owned) => Bytes::from(owned),
                    std::borrow::Cow::Borrowed(part) => stored.slice_ref(part),
                };
                if kind == FrameKind::Leaf { Self::Leaf(bytes) } else { Self::Fsinfo(bytes) }
            }
            FrameKind::Indirect => {
                Self::Indirect(Arc::new(Indirect::from_xdr(&payload).map_err(malformed)?))
            }
            FrameKind::DirLeaf => {
                Self::DirLeaf(Arc::new(LeafPage::from_xdr(&payload).map_err(malformed)?))
            }
            FrameKind::DirInterior => {
                Self::DirInterior(Arc::new(InteriorPage::from_xdr(&payload).map_err(malformed)?))
            }
        })
    }

    pub(crate) const fn kind(&self) -> FrameKind {
        match self {
            Self::Leaf(_) => FrameKind::Leaf,
            Self::Indirect(_) => FrameKind::Indirect,
            Self::DirLeaf(_) => FrameKind::DirLeaf,
            Self::DirInterior(_) => FrameKind::DirInterior,
            Self::Fsinfo(_) => FrameKind::Fsinfo,
        }
    }

    pub(crate) fn weight(&self) -> u64 {
        let len = match self {
            Self::Leaf(bytes) | Self::Fsinfo(bytes) => bytes.len(),
            Self::Indirect(page) => page.children.len() * size_of::<Option<BlockHandle>>(),
            Self::DirLeaf(page) => page.entries().len() * (size_of::<vouch_tree::DirEntry>() + 96),
            Self::DirInterior(page) => {
                page.children().len() * (size_of::<vouch_tree::directory::Child>() + 32)
            }
        };
        (len + 128) as u64
    }
}
