//! B+-trees of pages, sorted by name. A leaf page holds entries with their inodes, an interior page
//! the first name and the number of entries of each child. A page that covers a name but lacks it
//! proves its absence.

mod builder;
mod page;

pub use builder::DirectoryBuilder;
pub use page::{Child, DirEntry, InteriorPage, LeafPage, PageRef};

pub(crate) const PAGE_LEN_MIN: usize = 16 * 1024;

/// Length in XDR. A single longer entry has its own page.
pub const PAGE_LEN_MAX: usize = 64 * 1024;

/// Interior pages above a leaf. Each has some hundred children, so 8 levels suffice.
pub(crate) const HEIGHT_MAX: u8 = 8;
