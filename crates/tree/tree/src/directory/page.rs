use vouch_xdr::{Error as XdrError, Reader, Writer, Xdr};

use super::HEIGHT_MAX;
use crate::{BlockHandle, FileName, FrameKind, Inode};

const ENTRY_LEN_MIN: usize = 56;

const CHILD_LEN_MIN: usize = 48;

/// A page of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRef {
    /// 0 for a leaf page; the children of an interior page are one lower.
    pub height: u8,
    /// The frame of the page.
    pub handle: BlockHandle,
}

impl PageRef {
    /// The frame kind of a page at this height.
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
        let height = u8::try_from(r.u32()?)
            .ok()
            .filter(|&h| h <= HEIGHT_MAX)
            .ok_or(XdrError::Invalid("page height"))?;
        Ok(Self { height, handle: BlockHandle::from_bytes(r.opaque_fixed()?) })
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Unique in the directory.
    pub name: FileName,
    /// What the name stands for.
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

/// Ascending, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafPage {
    entries: Vec<DirEntry>,
}

impl LeafPage {
    /// Sorted by name, at least one.
    pub fn entries(&self) -> &[DirEntry] {
        &self.entries
    }

    /// `None` proves absence if this page covers the name.
    pub fn find(&self, name: &[u8]) -> Option<&DirEntry> {
        self.entries
            .binary_search_by(|e| e.name.as_bytes().cmp(name))
            .ok()
            .map(|i| &self.entries[i])
    }

    /// Index of the first entry behind `name`, which need not exist.
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
        if entries.is_empty() {
            Err(XdrError::Invalid("empty directory page"))
        } else {
            Ok(Self { entries })
        }
    }
}

/// A page below an interior page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Lowest name below the child.
    pub first: FileName,
    /// The frame of the child.
    pub handle: BlockHandle,
    /// Entries of the directory in and below the child.
    pub entries: u64,
}

impl Xdr for Child {
    fn encode(&self, w: &mut Writer) {
        self.first.encode(w);
        w.opaque_fixed(self.handle.as_bytes());
        w.u64(self.entries);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            first: FileName::decode(r)?,
            handle: BlockHandle::from_bytes(r.opaque_fixed()?),
            entries: r.u64()?,
        })
    }
}

/// Ascending, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InteriorPage {
    height: u8,
    children: Vec<Child>,
}

impl InteriorPage {
    /// 1 or more. Children are one lower.
    pub const fn height(&self) -> u8 {
        self.height
    }

    /// Sorted by their first names, at least one.
    pub fn children(&self) -> &[Child] {
        &self.children
    }

    /// The child at `index`; `None` past the end.
    pub fn page(&self, index: usize) -> Option<PageRef> {
        self.children.get(index).map(|c| PageRef { height: self.height - 1, handle: c.handle })
    }

    /// The only child that may hold `name`. `None` proves absence.
    pub fn child_for(&self, name: &[u8]) -> Option<usize> {
        self.children.partition_point(|c| c.first.as_bytes() <= name).checked_sub(1)
    }

    /// The child that holds entry `index` below this page, and the index in that child.
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
            // Fits a u64, so callers add without overflow.
            entries_below = entries_below
                .checked_add(child.entries)
                .ok_or(XdrError::Invalid("count of directory entries"))?;
            children.push(child);
        }
        if children.is_empty() {
            Err(XdrError::Invalid("empty directory page"))
        } else {
            Ok(Self { height: height as u8, children })
        }
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
        InteriorPage { height: 1, children: entries.iter().enumerate().map(child).collect() }
            .to_xdr()
    }

    #[test]
    fn refuses_overflow_of_entry_counts() {
        assert!(InteriorPage::from_xdr(&page(&[u64::MAX - 1, 1])).is_ok());
        for entries in [[u64::MAX, 1], [1 << 63, 1 << 63]] {
            assert_eq!(
                InteriorPage::from_xdr(&page(&entries)),
                Err(XdrError::Invalid("count of directory entries"))
            );
        }
        assert!(InteriorPage::from_xdr(&page(&[1, 0])).is_err());
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    fn check<P: Xdr>(bytes: &[u8], is_sound: impl Fn(&P) -> bool) {
        if let Ok(page) = P::from_xdr(bytes) {
            assert!(is_sound(&page), "{bytes:x?}");
            assert_eq!(page.to_xdr(), bytes, "one form");
        }
    }

    /// All pages that differ from a right one in one byte, or in two (of those values that matter),
    /// and all shorter ones.
    fn check_near<P: Xdr>(right: &[u8], is_sound: impl Fn(&P) -> bool + Copy) {
        assert!(P::from_xdr(right).is_ok());
        let mut bytes = right.to_vec();
        for at in 0..right.len() {
            check(&right[..at], is_sound);
            for value in 0..=255 {
                bytes[at] = value;
                check(&bytes, is_sound);
                for other in at + 1..if value.is_power_of_two() { right.len() } else { 0 } {
                    for value in [0, 1, 2, 0x2f, 0x80, 0xff] {
                        bytes[other] = value;
                        check(&bytes, is_sound);
                    }
                    bytes[other] = right[other];
                }
            }
            bytes[at] = right[at];
        }
    }

    #[test]
    fn exhaustive_neighbours_of_pages_are_refused_or_sound() {
        check_near(&page(&[1, 2, 3][..bound(2, 3)]), |page: &InteriorPage| {
            let names = page.children.iter().map(|child| &child.first);
            (1..=HEIGHT_MAX).contains(&page.height)
                && names.is_sorted_by(|one, other| one < other)
                && page.children.iter().map(|child| u128::from(child.entries)).sum::<u128>()
                    <= u64::MAX.into()
        });
    }
}
