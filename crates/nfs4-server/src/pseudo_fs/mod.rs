//! The pseudo file system (RFC 8881, section 7.3).

mod tree;
mod visibility;

pub(crate) use tree::{Child, Node, PSEUDO_FSID, Place, Site, Tree};
pub(crate) use visibility::VisibilityCache;
