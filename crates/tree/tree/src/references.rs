//! Collection, pull and verification follow these references.

use vouch_xdr::{Error as XdrError, Xdr};

use crate::blob::Indirect;
use crate::directory::{InteriorPage, LeafPage};
use crate::{BlockHandle, Content, FrameKind, Inode, SignedFsinfo};

/// Sorted by use, with repetitions; without the previous fsinfo.
pub fn of_payload(
    kind: FrameKind,
    payload: &[u8],
) -> Result<Vec<(FrameKind, BlockHandle)>, XdrError> {
    Ok(match kind {
        FrameKind::Leaf => Vec::new(),
        FrameKind::Indirect => {
            let page = Indirect::from_xdr(payload)?;
            let kind = page.child_kind();
            page.children.iter().flatten().map(|handle| (kind, *handle)).collect()
        }
        FrameKind::DirLeaf => {
            let page = LeafPage::from_xdr(payload)?;
            page.entries().iter().flat_map(|entry| of_inode(&entry.inode)).collect()
        }
        FrameKind::DirInterior => {
            let page = InteriorPage::from_xdr(payload)?;
            (0..page.children().len())
                .filter_map(|i| page.page(i))
                .map(|p| (p.kind(), p.handle))
                .collect()
        }
        FrameKind::Fsinfo => {
            let fsinfo = SignedFsinfo::from_xdr(payload)?.unverified()?;
            of_inode(&fsinfo.root).collect()
        }
    })
}

/// Top of the content, and of the extended attributes.
pub fn of_inode(inode: &Inode) -> impl Iterator<Item = (FrameKind, BlockHandle)> + use<> {
    let content = match &inode.content {
        Content::Regular { blob, .. } => blob.top(),
        Content::Directory { top, .. } => top.map(|page| (page.kind(), page.handle)),
        _ => None,
    };
    content.into_iter().chain(inode.xattrs.top())
}
