mod tree;
mod visibility;

pub(crate) use tree::{Child, Node, PSEUDO_FSID, Place, Site, Tree};
pub(crate) use visibility::VisibilityCache;
