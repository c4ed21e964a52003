//! Directories: B+-trees of pages, sorted by the bytes of the names.
//!
//! A leaf page holds entries with their inodes, so that `ls -l` needs no further frame; an interior
//! page holds, for each child, its first name and how many entries lie below it. A page that covers
//! a name and lacks it proves that the name does not exist.

mod builder;
mod page;

pub use builder::DirectoryBuilder;
pub use page::{Child, DirEntry, InteriorPage, LeafPage, PageRef};

/// No page closes before it has this many bytes of XDR, but for the last of its level.
pub const PAGE_LEN_MIN: usize = 16 * 1024;

/// No page grows over this many bytes of XDR, unless one entry does so alone.
pub const PAGE_LEN_MAX: usize = 64 * 1024;

/// Levels of interior pages above the leaves. Each has a fan-out of some hundred; 8 outgrow every
/// directory.
pub const HEIGHT_MAX: u8 = 8;
