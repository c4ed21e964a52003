//! Walks over the pages of a directory as an earlier publication stored them, in the order of the
//! names.

use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_tree::{DirEntry, Inode, PageRef};
use vouch_xdr::Xdr as _;

use crate::error::Error;
use crate::frames::Frames;

/// One entry after the other. Memory: one page a level.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// Pages that are still to be visited, the next one last.
    ahead: Vec<PageRef>,
    entries: std::vec::IntoIter<DirEntry>,
}

impl Cursor {
    pub(crate) fn new(top: Option<PageRef>) -> Self {
        Self { ahead: top.into_iter().collect(), entries: Vec::new().into_iter() }
    }

    /// The inode of `name`, which comes after all names asked for before. `None`: it is not there,
    /// or a page is missing.
    pub(crate) fn find(&mut self, frames: &Frames<'_>, name: &[u8]) -> Result<Option<Inode>, Error> {
        loop {
            for entry in self.entries.by_ref() {
                match entry.name.as_bytes().cmp(name) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Ok(Some(entry.inode)),
                    std::cmp::Ordering::Greater => return Ok(None),
                }
            }
            let Some(page) = self.ahead.pop() else { return Ok(None) };
            let Some(payload) = frames.get(page.kind(), &page.handle)? else { return Ok(None) };
            if page.height == 0 {
                let Ok(leaf) = LeafPage::from_xdr(&payload) else { return Ok(None) };
                self.entries = leaf.entries().to_vec().into_iter();
            } else {
                let Ok(interior) = InteriorPage::from_xdr(&payload) else { return Ok(None) };
                // Children that end before the name need no visit.
                let from = interior.child_for(name).unwrap_or(0);
                self.ahead.extend((from..interior.children().len()).rev().filter_map(|i| interior.page(i)));
            }
        }
    }
}
