//! Once for a long path after a restart or eviction. The trail has two bytes of each directory's
//! name hash and the first bytes of the file's name. O(entries of the directories on the way);
//! below 23 directories, O(everything there).

use std::io;
use std::sync::Arc;

use vouch_tree::name::FILE_NAME_LEN_MAX;
use vouch_tree::{FileType, Inode};
use vouch_tree_client::{Listing, Position};
use vouch_vfs::{Error, Result};

use crate::core::CallContext;
use crate::identity::{MARK_LEN, MARKS_MAX, Trail};
use crate::node::Node;

impl CallContext<'_> {
    /// `None` if the signed tree proves the file's absence.
    pub(crate) fn search(&self, file_type: FileType, trail: &Trail) -> Result<Option<Arc<Node>>> {
        let mut found = None;
        let mut left = ENTRIES_MAX;
        let mut queue = vec![(Vec::new(), 0, Arc::new(self.revision.root().clone()))];
        while let Some((path, depth, directory)) = queue.pop() {
            let at = MARK_LEN * MARKS_MAX.min(depth);
            let lead = trail.rest.get(at..).unwrap_or_default();
            let join = |name: &[u8]| {
                if path.is_empty() { name.to_vec() } else { [&path[..], b"/", name].concat() }
            };
            self.each_after(&directory, &before(lead), &mut left, |name, inode| {
                let fits = name.starts_with(lead);
                if fits && inode.file_type() == file_type {
                    let path = join(name);
                    if self.core.identities.hash(&path) == trail.hash {
                        found = Some(path);
                        return false;
                    }
                }
                fits
            })?;
            if let Some(path) = found {
                return self.at(&path);
            }
            let mark =
                if depth < MARKS_MAX { trail.rest.get(at..at + MARK_LEN) } else { Some(&[][..]) };
            let Some(mark) = mark else { continue };
            self.each_after(&directory, b"", &mut left, |name, inode| {
                if inode.is_directory()
                    && (mark.is_empty() || self.core.identities.mark(name) == mark)
                {
                    queue.push((join(name), depth + 1, Arc::new(inode.clone())));
                }
                true
            })?;
        }
        Ok(None)
    }

    fn each_after(
        &self,
        directory: &Inode,
        name: &[u8],
        left: &mut u64,
        mut each: impl FnMut(&[u8], &Inode) -> bool,
    ) -> Result<()> {
        let mut page = if name.is_empty() {
            self.page(directory, Position::Start)?
        } else {
            self.page(directory, Position::After(name))?
        };
        loop {
            for entry in page.entries() {
                *left = left.checked_sub(1).ok_or_else(|| {
                    Error::Io(io::Error::other("the search for a file with a long path was given up: too many directory entries match"))
                })?;
                if !each(entry.name.as_bytes(), &entry.inode) {
                    return Ok(());
                }
            }
            if page.last || page.entries().is_empty() {
                return Ok(());
            }
            page = self.page(directory, page.next())?;
        }
    }

    pub(crate) fn page(&self, directory: &Inode, from: Position<'_>) -> Result<Listing> {
        let tree = &self.core.tree;
        self.answer(tree.try_list(directory, from), || tree.list(directory, from))
    }
}

fn before(lead: &[u8]) -> Vec<u8> {
    match lead.split_last() {
        Some((last, shorter)) => {
            [shorter, &[last.saturating_sub(1)], &[0xff; FILE_NAME_LEN_MAX]].concat()
        }
        None => Vec::new(),
    }
}

const ENTRIES_MAX: u64 = 8 << 20;
