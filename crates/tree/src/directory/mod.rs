//! Directories: B+-trees of pages, sorted by name.
//!
//! A leaf page holds entries with their inodes, so `ls -l` needs no further frame. An interior page
//! holds the first name and the number of entries of each child. A page that covers a name but does
//! not contain it proves that the name does not exist.

mod builder;
mod page;

pub use builder::DirectoryBuilder;
pub use page::{Child, DirEntry, InteriorPage, LeafPage, PageRef};

/// Shortest page in bytes of XDR, except for the last page of a level.
pub(crate) const PAGE_LEN_MIN: usize = 16 * 1024;

/// Longest page in bytes of XDR, unless a single entry is longer.
pub const PAGE_LEN_MAX: usize = 64 * 1024;

/// Levels of interior pages above the leaf pages. The fan-out is some hundred: 8 levels suffice.
pub(crate) const HEIGHT_MAX: u8 = 8;
