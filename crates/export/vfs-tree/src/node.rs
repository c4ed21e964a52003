//! Bounded cache of nodes. Files are found without it.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use vouch_tree::inode_number::InodeNumber;
use vouch_tree::{Blob, BlobBody, Content, Inode};
use vouch_vfs::FileId;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: FileId,
    pub(crate) path: Arc<[u8]>,
    pub(crate) number: InodeNumber,
    pub(crate) inode: Arc<Inode>,
    pub(crate) generation: u64,
    /// From the inode, so the same on every server of the tree.
    pub(crate) change: u64,
}

impl Node {
    pub(crate) fn new(
        id: FileId,
        path: Arc<[u8]>,
        number: InodeNumber,
        inode: Arc<Inode>,
        generation: u64,
    ) -> Self {
        let change =
            u64::from_be_bytes(*inode.digest().first_chunk().expect("a digest has 32 bytes"));
        Node { id, path, number, inode, generation, change }
    }

    pub(crate) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [&self.path[..], b"/", name].concat() }
    }

    pub(crate) fn is_opaque(&self) -> bool {
        matches!(self.inode.content, Content::Directory { opaque: true, .. })
    }
}

pub(crate) type Nodes = Cache<FileId, Arc<Node>, NodeWeight>;

pub(crate) fn nodes(bytes: u64) -> Nodes {
    Cache::with_weighter((bytes / NODE_LEN_EXPECTED) as usize, bytes, NodeWeight)
}

#[derive(Clone)]
pub(crate) struct NodeWeight;

impl Weighter<FileId, Arc<Node>> for NodeWeight {
    fn weight(&self, _: &FileId, node: &Arc<Node>) -> u64 {
        let inline = match &node.inode.xattrs.body {
            BlobBody::Inline(bytes) => bytes.len(),
            _ => 0,
        };
        let target = match &node.inode.content {
            Content::Symlink(target) => target.len(),
            _ => 0,
        };
        (2 * size_of::<FileId>()
            + size_of::<Node>()
            + size_of::<Inode>()
            + 64
            + node.path.len()
            + inline
            + target) as u64
    }
}

/// A hash replaces inline content: short, and different for different content.
pub(crate) fn without_inline_content(inode: &Inode) -> Inode {
    match &inode.content {
        Content::Regular { blob: Blob { size, body: BlobBody::Inline(bytes) }, space }
            if bytes.len() > CONTENT_HASH_LEN =>
        {
            let body = BlobBody::Inline(blake3::hash(bytes).as_bytes().to_vec());
            Inode {
                content: Content::Regular { blob: Blob { size: *size, body }, space: *space },
                xattrs: inode.xattrs.clone(),
                ..*inode
            }
        }
        _ => inode.clone(),
    }
}

pub(crate) const fn has_content_hash(blob: &Blob) -> bool {
    matches!(&blob.body, BlobBody::Inline(bytes) if bytes.len() as u64 != blob.size)
}

const CONTENT_HASH_LEN: usize = 32;

const NODE_LEN_EXPECTED: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: Vec<u8>) -> Inode {
        let content = Content::Regular {
            blob: Blob { size: bytes.len() as u64, body: BlobBody::Inline(bytes) },
            space: 0,
        };
        Inode { uid: 1, gid: 2, ..Inode::new(0o644, content) }
    }

    #[test]
    fn hashed_inodes_distinguish_contents() {
        let blob = |inode: &Inode| {
            if let Content::Regular { blob, .. } = &inode.content {
                blob.clone()
            } else {
                unreachable!()
            }
        };
        let (a, b) = (
            without_inline_content(&file(vec![1; 900])),
            without_inline_content(&file(vec![2; 900])),
        );
        assert_ne!(a, b);
        assert!(has_content_hash(&blob(&a)) && a.size() == 900);
        for len in [0, 31, 32] {
            let short = without_inline_content(&file(vec![1; len]));
            assert!(!has_content_hash(&blob(&short)));
            assert_eq!(short, file(vec![1; len]));
        }
        assert!(has_content_hash(&blob(&without_inline_content(&file(vec![1; 33])))));
    }
}
