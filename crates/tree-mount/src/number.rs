//! Inode numbers of a mount: the tree's own (see [`vouch_tree::number`]).
//!
//! The kernel's node ids are the same numbers, so that readdir(3) and stat(2) agree without asking
//! the node table.

pub(crate) use vouch_tree::number::{FileNumber as NodeId, Numbering};
