mod tree;
mod visibility;

pub(crate) use tree::{Child, Node, PSEUDO_FSID, PseudoNode, Site, Tree};
pub(crate) use visibility::VisibilityCache;
