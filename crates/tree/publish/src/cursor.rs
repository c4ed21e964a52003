//! Stored directory pages in the order of names.

use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_tree::{DirEntry, Inode, PageRef};
use vouch_xdr::Xdr as _;

use crate::error::Error;
use crate::frames::Frames;

/// Memory: one page for each level.
#[derive(Debug)]
pub(crate) struct Cursor {
    ahead: Vec<PageRef>,
    entries: std::vec::IntoIter<DirEntry>,
}

impl Cursor {
    pub(crate) fn new(top: Option<PageRef>) -> Self {
        Self { ahead: top.into_iter().collect(), entries: Vec::new().into_iter() }
    }

    /// `name` must follow all earlier names. `None`: absent, or a page is missing.
    pub(crate) fn find(
        &mut self,
        frames: &Frames<'_>,
        name: &[u8],
    ) -> Result<Option<Inode>, Error> {
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
                // Skips children that end before the name.
                let from = interior.child_for(name).unwrap_or(0);
                self.ahead.extend(
                    (from..interior.children().len()).rev().filter_map(|i| interior.page(i)),
                );
            }
        }
    }
}
