//! The two kinds of directory pages, and the search within one.

use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use super::HEIGHT_MAX;
use crate::{BlockHandle, FileName, FrameKind, Inode};

/// The least bytes that an entry takes in XDR: bounds counts by the input's own length.
const ENTRY_LEN_MIN: usize = 56;

/// The least bytes that a child takes in XDR.
const CHILD_LEN_MIN: usize = 48;

/// A page by its place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRef {
    /// 0: a leaf page; else interior, with children of `height` - 1.
    pub height: u8,
    /// The page's frame.
    pub handle: BlockHandle,
}

impl PageRef {
    /// The kind of the page's frame.
    pub const fn kind(&self) -> FrameKind {
        if self.height == 0 { FrameKind::DirLeaf } else { FrameKind::DirInterior }
    }
}

impl Xdr for PageRef {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.height.into());
        w.opaque_fixed(self.handle.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let height = u8::try_from(r.u32()?).ok().filter(|&h| h <= HEIGHT_MAX).ok_or(XdrError::Invalid("page height"))?;
        Ok(Self { height, handle: BlockHandle::from_bytes(r.opaque_fixed()?) })
    }
}

/// A name in a directory, and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: FileName,
    /// The file.
    pub inode: Inode,
}

impl Xdr for DirEntry {
    fn encode(&self, w: &mut Writer) {
        self.name.encode(w);
        self.inode.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { name: FileName::decode(r)?, inode: Inode::decode(r)? })
    }
}

/// The payload of a [`FrameKind::DirLeaf`] frame: at least one entry, strictly ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafPage {
    entries: Vec<DirEntry>,
}

impl LeafPage {
    /// All entries.
    pub fn entries(&self) -> &[DirEntry] {
        &self.entries
    }

    /// The entry of `name`; `None` proves that the directory lacks it, if this is the page that
    /// covers the name.
    pub fn find(&self, name: &[u8]) -> Option<&DirEntry> {
        self.entries.binary_search_by(|e| e.name.as_bytes().cmp(name)).ok().map(|i| &self.entries[i])
    }

    /// How many entries have names up to and including `name`: the index to go on from after it.
    pub fn index_after(&self, name: &[u8]) -> usize {
        self.entries.partition_point(|e| e.name.as_bytes() <= name)
    }
}

impl Xdr for LeafPage {
    fn encode(&self, w: &mut Writer) {
        w.count(self.entries.len());
        self.entries.iter().for_each(|e| e.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let count = r.count(r.remaining() / ENTRY_LEN_MIN)?;
        let mut entries: Vec<DirEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let entry = DirEntry::decode(r)?;
            if entries.last().is_some_and(|last| last.name >= entry.name) {
                return Err(XdrError::Invalid("order of directory entries"));
            }
            entries.push(entry);
        }
        if entries.is_empty() { Err(XdrError::Invalid("empty directory page")) } else { Ok(Self { entries }) }
    }
}

/// A child of an interior page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// The least name below the child.
    pub first: FileName,
    /// The child's frame.
    pub handle: BlockHandle,
    /// Entries below the child.
    pub entries: u64,
}

impl Xdr for Child {
    fn encode(&self, w: &mut Writer) {
        self.first.encode(w);
        w.opaque_fixed(self.handle.as_bytes());
        w.u64(self.entries);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self { first: FileName::decode(r)?, handle: BlockHandle::from_bytes(r.opaque_fixed()?), entries: r.u64()? })
    }
}

/// The payload of a [`FrameKind::DirInterior`] frame: at least one child, strictly ascending by
/// first name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InteriorPage {
    height: u8,
    children: Vec<Child>,
}

impl InteriorPage {
    /// 1 or more; the children's is one less.
    pub const fn height(&self) -> u8 {
        self.height
    }

    /// All children.
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// The child at `index` as a page.
    pub fn page(&self, index: usize) -> Option<PageRef> {
        self.children.get(index).map(|c| PageRef { height: self.height - 1, handle: c.handle })
    }

    /// The index of the only child that can hold `name`; `None` proves that the directory lacks it.
    pub fn child_for(&self, name: &[u8]) -> Option<usize> {
        self.children.partition_point(|c| c.first.as_bytes() <= name).checked_sub(1)
    }

    /// The child that holds entry number `index` of those below this page, and that entry's number
    /// within it.
    pub fn child_at(&self, index: u64) -> Option<(usize, u64)> {
        let mut left = index;
        for (i, child) in self.children.iter().enumerate() {
            if left < child.entries {
                return Some((i, left));
            }
            left -= child.entries;
        }
        None
    }
}

impl Xdr for InteriorPage {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.height.into());
        w.count(self.children.len());
        self.children.iter().for_each(|c| c.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        let height = r.u32()?;
        if !(1..=u32::from(HEIGHT_MAX)).contains(&height) {
            return Err(XdrError::Invalid("page height"));
        }
        let count = r.count(r.remaining() / CHILD_LEN_MIN)?;
        let mut entries_below = 0_u64;
        let mut children: Vec<Child> = Vec::with_capacity(count);
        for _ in 0..count {
            let child = Child::decode(r)?;
            if child.entries == 0 || children.last().is_some_and(|last| last.first >= child.first) {
                return Err(XdrError::Invalid("order of directory pages"));
            }
            // No directory has more entries than a number counts, and nobody who adds them up need look out.
            entries_below = entries_below.checked_add(child.entries).ok_or(XdrError::Invalid("count of directory entries"))?;
            children.push(child);
        }
        if children.is_empty() { Err(XdrError::Invalid("empty directory page")) } else { Ok(Self { height: height as u8, children }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(entries: &[u64]) -> Vec<u8> {
        let child = |(i, &entries): (usize, &u64)| Child {
            first: FileName::parse(format!("{i}").as_bytes()).unwrap(),
            handle: BlockHandle::from_bytes([i as u8; 32]),
            entries,
        };
        InteriorPage { height: 1, children: entries.iter().enumerate().map(child).collect() }.to_xdr()
    }

    #[test]
    fn more_entries_than_a_number_counts_are_refused() {
        assert!(InteriorPage::from_xdr(&page(&[u64::MAX - 1, 1])).is_ok());
        for entries in [[u64::MAX, 1], [1 << 63, 1 << 63]] {
            assert_eq!(InteriorPage::from_xdr(&page(&entries)), Err(XdrError::Invalid("count of directory entries")));
        }
        assert!(InteriorPage::from_xdr(&page(&[1, 0])).is_err());
    }
}
