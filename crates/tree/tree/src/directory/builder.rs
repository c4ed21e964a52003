//! Builds pages from sorted entries. A page ends by the names near it, so a change rewrites one
//! leaf page and the pages above it.

use vouch_xdr::{Writer, Xdr};

use super::{Child, DirEntry, HEIGHT_MAX, PAGE_LEN_MAX, PAGE_LEN_MIN, PageRef};
use crate::{BlockHandle, FileName, FrameKind, Inode};

/// Takes the entries of one directory in order.
#[derive(Debug, Default)]
pub struct DirectoryBuilder {
    levels: Vec<PageInProgress>,
    last: Option<FileName>,
    entries: u64,
}

#[derive(Debug, Default)]
struct PageInProgress {
    items: Writer,
    count: u32,
    first: Option<FileName>,
    entries: u64,
    closed: u64,
    last_closed: Option<BlockHandle>,
}

impl DirectoryBuilder {
    /// A builder without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Entries so far.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// `put` stores each complete page and returns its handle.
    ///
    /// # Panics
    /// `name` does not sort after the previous name.
    pub fn push<E>(
        &mut self,
        name: FileName,
        inode: Inode,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        assert!(
            self.last.as_ref().is_none_or(|last| *last < name),
            "entries come in the order of their names"
        );
        self.last = Some(name.clone());
        self.entries += 1;
        let entry = DirEntry { name, inode };
        self.append(0, &entry.name, &entry.to_xdr(), 1, put)
    }

    /// `None` for an empty directory.
    pub fn finish<E>(
        mut self,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<Option<PageRef>, E> {
        let mut height = 0;
        while height < self.levels.len() {
            let level = &self.levels[height];
            let only_page = level.closed + u64::from(level.count > 0) == 1;
            if level.count > 0 {
                if only_page {
                    let handle = self.store(height, put)?;
                    return Ok(Some(PageRef { height: height as u8, handle }));
                }
                self.close(height, put)?;
            } else if only_page && let Some(handle) = level.last_closed {
                return Ok(Some(PageRef { height: height as u8, handle }));
            }
            height += 1;
        }
        Ok(None)
    }

    fn append<E>(
        &mut self,
        height: usize,
        first: &FileName,
        xdr: &[u8],
        entries: u64,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        assert!(
            height <= usize::from(HEIGHT_MAX),
            "a directory of this fan-out outgrows every file system first"
        );
        if self.levels.len() <= height {
            self.levels.push(PageInProgress::default());
        }
        if self.levels[height].count > 0
            && HEADER_LEN + self.levels[height].items.len() + xdr.len() > PAGE_LEN_MAX
        {
            self.close(height, put)?;
        }
        let level = &mut self.levels[height];
        level.items.raw(xdr);
        level.count += 1;
        level.entries += entries;
        level.first.get_or_insert_with(|| first.clone());
        if HEADER_LEN + level.items.len() >= PAGE_LEN_MIN && ends_page(height, first, xdr.len()) {
            self.close(height, put)?;
        }
        Ok(())
    }

    fn close<E>(
        &mut self,
        height: usize,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<(), E> {
        let first =
            self.levels[height].first.clone().expect("a page closes only with an item in it");
        let entries = self.levels[height].entries;
        let handle = self.store(height, put)?;
        let child = Child { first, handle, entries };
        self.append(height + 1, &child.first, &child.to_xdr(), entries, put)
    }

    fn store<E>(
        &mut self,
        height: usize,
        put: &mut impl FnMut(FrameKind, &[u8]) -> Result<BlockHandle, E>,
    ) -> Result<BlockHandle, E> {
        let level = &mut self.levels[height];
        let mut page = Writer::new();
        if height > 0 {
            page.u32(height as u32);
        }
        page.u32(level.count);
        page.raw(level.items.as_bytes());
        let kind = if height == 0 { FrameKind::DirLeaf } else { FrameKind::DirInterior };
        let handle = put(kind, page.as_bytes())?;
        *level = PageInProgress {
            closed: level.closed + 1,
            last_closed: Some(handle),
            ..PageInProgress::default()
        };
        Ok(handle)
    }
}

const HEADER_LEN: usize = 8;

fn ends_page(height: usize, name: &FileName, item_len: usize) -> bool {
    // FNV-1a with a final mix. Only the publisher chooses the names, so collisions are harmless.
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ height as u64;
    for &byte in name.as_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let odds = (u64::MAX / PAGE_LEN_MIN as u64).saturating_mul(item_len as u64);
    hash < odds
}

#[cfg(test)]
mod tests {
    use super::super::{InteriorPage, LeafPage};
    use super::*;
    use crate::{Blob, Content, Timestamp};
    use std::collections::{BTreeMap, HashMap};

    fn inode(n: u64) -> Inode {
        Inode {
            mtime: Timestamp { s: n as i64, ns: 0 },
            ..Inode::new(0o644, Content::Regular { blob: Blob::empty(), space: 0 })
        }
    }

    #[derive(Default)]
    struct Pages(HashMap<BlockHandle, Vec<u8>>);

    impl Pages {
        fn build(&mut self, names: &BTreeMap<FileName, u64>) -> Option<PageRef> {
            let mut put = |_: FrameKind, payload: &[u8]| {
                let handle = BlockHandle::from_bytes(*blake3::hash(payload).as_bytes());
                self.0.insert(handle, payload.to_vec());
                Ok::<_, ()>(handle)
            };
            let mut builder = DirectoryBuilder::new();
            for (name, n) in names {
                builder.push(name.clone(), inode(*n), &mut put).unwrap();
            }
            builder.finish(&mut put).unwrap()
        }

        fn find(&self, mut page: PageRef, name: &[u8]) -> Option<Inode> {
            while page.height > 0 {
                let interior = InteriorPage::from_xdr(&self.0[&page.handle]).unwrap();
                assert_eq!(interior.height(), page.height);
                page = interior.page(interior.child_for(name)?).unwrap();
            }
            LeafPage::from_xdr(&self.0[&page.handle]).unwrap().find(name).map(|e| e.inode.clone())
        }

        fn list(&self, page: PageRef, into: &mut Vec<FileName>) {
            if page.height == 0 {
                into.extend(
                    LeafPage::from_xdr(&self.0[&page.handle])
                        .unwrap()
                        .entries()
                        .iter()
                        .map(|e| e.name.clone()),
                );
                return;
            }
            let interior = InteriorPage::from_xdr(&self.0[&page.handle]).unwrap();
            for i in 0..interior.children().len() {
                let before = into.len();
                self.list(interior.page(i).unwrap(), into);
                assert_eq!((into.len() - before) as u64, interior.children()[i].entries);
                assert_eq!(into[before], interior.children()[i].first);
            }
        }
    }

    fn names(count: u64, step: u64) -> BTreeMap<FileName, u64> {
        (0..count)
            .map(|n| (FileName::parse(format!("file-{:08}", n * step).as_bytes()).unwrap(), n))
            .collect()
    }

    #[test]
    fn finds_every_name_and_proves_missing_ones() {
        for count in [0, 1, 2, 100, 1_000, 60_000] {
            let (mut pages, names) = (Pages::default(), names(count, 2));
            let top = pages.build(&names);
            assert_eq!(top.is_none(), count == 0);
            let Some(top) = top else { continue };
            let mut list = Vec::new();
            pages.list(top, &mut list);
            assert!(list.iter().eq(names.keys()));
            for n in (0..count).step_by(1 + count as usize / 50) {
                assert_eq!(
                    pages.find(top, format!("file-{:08}", n * 2).as_bytes()),
                    Some(inode(n))
                );
                assert_eq!(pages.find(top, format!("file-{:08}", n * 2 + 1).as_bytes()), None);
            }
            assert_eq!(pages.find(top, b"a"), None);
            assert_eq!(pages.find(top, b"z"), None);
        }
    }

    #[test]
    fn pages_stay_within_length_limits() {
        let (mut pages, names) = (Pages::default(), names(60_000, 1));
        pages.build(&names);
        assert!(pages.0.values().all(|p| p.len() <= PAGE_LEN_MAX));
        let small = pages.0.values().filter(|p| p.len() < PAGE_LEN_MIN).count();
        assert!(small <= 3, "only the last page of a level may be short: {small}");
    }

    #[test]
    fn one_change_rewrites_one_page_per_level() {
        let (mut pages, mut names) = (Pages::default(), names(60_000, 2));
        let top = pages.build(&names).unwrap();
        let before = pages.0.len();
        names.insert(FileName::parse(b"file-00050001").unwrap(), 7);
        pages.build(&names);
        let rewritten = pages.0.len() - before;
        assert!(rewritten <= usize::from(top.height) + 4, "{rewritten} pages for one new name");
    }
}
