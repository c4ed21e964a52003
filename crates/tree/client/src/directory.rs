use std::ops::Deref;
use std::sync::Arc;

use vouch_tree::directory::LeafPage;
use vouch_tree::{BlockHandle, Content, DirEntry, FileType, Inode, PageRef};

use crate::frame::Frame;
use crate::replica::Priority;
use crate::tree::{PAGE_LEN_EXPECTED, Source};
use crate::{Error, Result, Tree};

const PAGES_AHEAD: usize = 16;

/// Shares its page: cheap to clone.
#[derive(Debug, Clone)]
pub struct Entry {
    page: Arc<LeafPage>,
    index: usize,
}

impl Deref for Entry {
    type Target = DirEntry;

    fn deref(&self) -> &DirEntry {
        &self.page.entries()[self.index]
    }
}

impl Entry {
    /// The entries of its page, and its index among them.
    pub(crate) fn within_page(&self) -> (&[DirEntry], usize) {
        (self.page.entries(), self.index)
    }
}

/// Where a listing begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position<'a> {
    /// At the first entry.
    Start,
    /// The first name after this.
    After(&'a [u8]),
    /// Index from 0.
    Number(u64),
}

/// Part of a directory: the entries of one page from a position on.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Index of the first entry.
    pub number: u64,
    /// The directory ends here.
    pub last: bool,
    page: Option<Arc<LeafPage>>,
    first: usize,
}

impl Listing {
    /// Sorted by name; empty only at the end of the directory.
    pub fn entries(&self) -> &[DirEntry] {
        self.page.as_ref().map_or(&[], |page| &page.entries()[self.first..])
    }

    /// An entry that keeps its page alive; `None` past the end.
    pub fn entry(&self, index: usize) -> Option<Entry> {
        let page = self.page.as_ref()?;
        let index = self.first.checked_add(index)?;
        (index < page.entries().len()).then(|| Entry { page: Arc::clone(page), index })
    }

    /// Where the next listing begins.
    pub fn next(&self) -> Position<'static> {
        Position::Number(self.number + self.entries().len() as u64)
    }

    const fn past_the_end(number: u64) -> Self {
        Self { number, last: true, page: None, first: 0 }
    }
}

/// Takes frames and returns the next page to fetch. Does no I/O.
struct Descent<'a> {
    target: Position<'a>,
    page: PageRef,
    before: u64,
    expected: Option<u64>,
    siblings: Vec<PageRef>,
    total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafSpan {
    pub(crate) handle: BlockHandle,
    pub(crate) number: u64,
    pub(crate) entries: u64,
}

enum Step {
    Down,
    Leaf(Arc<LeafPage>),
    Absent,
}

impl<'a> Descent<'a> {
    fn begin(dir: &Inode, target: Position<'a>) -> Result<Option<Self>> {
        match &dir.content {
            Content::Directory { entries, top, .. } => Ok(top.map(|page| {
                let total = *entries;
                Descent {
                    target,
                    page,
                    before: 0,
                    expected: Some(total),
                    siblings: Vec::new(),
                    total,
                }
            })),
            _ => Err(Error::WrongType { expected: FileType::Directory, found: dir.file_type() }),
        }
    }

    fn step(&mut self, frame: Frame) -> Result<Step> {
        let damaged = |what: &str| Error::Damaged {
            what: format!("directory page {}: {what}", self.page.handle),
        };
        let page = match frame {
            Frame::DirLeaf(page) => {
                if self.expected.is_some_and(|expected| expected != page.entries().len() as u64) {
                    return Err(damaged("its number of entries differs from its parent's count"));
                }
                return Ok(Step::Leaf(page));
            }
            Frame::DirInterior(page) => page,
            _ => return Err(damaged("not a directory page")),
        };
        if page.height() != self.page.height {
            return Err(damaged("its height differs from the one in its parent"));
        }
        let index = match self.target {
            Position::Start => Some(0),
            Position::After(name) => Some(page.child_for(name).unwrap_or(0)),
            Position::Number(number) => number
                .checked_sub(self.before)
                .and_then(|within| page.child_at(within))
                .map(|found| found.0),
        };
        let Some(index) = index else { return Ok(Step::Absent) };
        let (Some(child), Some(next)) = (page.children().get(index), page.page(index)) else {
            return Ok(Step::Absent);
        };
        let before: Option<u64> = page.children()[..index]
            .iter()
            .try_fold(self.before, |sum, child| sum.checked_add(child.entries));
        self.before = before.ok_or_else(|| damaged("its entry counts overflow"))?;
        self.siblings = (index + 1..page.children().len())
            .take(PAGES_AHEAD)
            .filter_map(|i| page.page(i))
            .collect();
        self.expected = (next.height == 0).then_some(child.entries);
        self.page = next;
        Ok(Step::Down)
    }

    fn listing(&self, page: Arc<LeafPage>) -> Option<Listing> {
        let len = page.entries().len();
        let first = match self.target {
            Position::Start => 0,
            Position::After(name) => page.index_after(name),
            Position::Number(number) => {
                usize::try_from(number.saturating_sub(self.before)).unwrap_or(usize::MAX)
            }
        };
        let end = self.before + len as u64;
        if first >= len {
            return (end >= self.total).then(|| Listing::past_the_end(end));
        }
        Some(Listing {
            number: self.before + first as u64,
            last: end >= self.total,
            page: Some(page),
            first,
        })
    }
}

fn find_entry(page: Arc<LeafPage>, name: &[u8]) -> Option<Entry> {
    let index = page.index_after(name).checked_sub(1)?;
    let entry = Entry { page, index };
    (entry.name.as_bytes() == name).then_some(entry)
}

impl Tree {
    /// `None`: the signed tree proves that the name does not exist.
    pub async fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Option<Entry>> {
        let deadline = self.start_operation().await?;
        self.lookup_from(dir, name, Source::foreground(deadline)).await.map(Option::flatten)
    }

    /// As [`Tree::lookup`], without the network.
    pub fn try_lookup(&self, dir: &Inode, name: &[u8]) -> Option<Result<Option<Entry>>> {
        self.run_local(self.lookup_from(dir, name, Source::Local))
    }

    /// `Ok(None)`: a frame must be fetched, but the source is local.
    #[allow(clippy::option_option, reason = "not cached, proven missing, found")]
    pub(crate) async fn lookup_from(
        &self,
        dir: &Inode,
        name: &[u8],
        source: Source,
    ) -> Result<Option<Option<Entry>>> {
        let Some(mut descent) = Descent::begin(dir, Position::After(name))? else {
            return Ok(Some(None));
        };
        loop {
            let page = descent.page;
            let Some(frame) =
                self.frame_from(page.kind(), &page.handle, PAGE_LEN_EXPECTED, source).await?
            else {
                return Ok(None);
            };
            match descent.step(frame)? {
                Step::Down => {}
                Step::Leaf(page) => return Ok(Some(find_entry(page, name))),
                Step::Absent => return Ok(Some(None)),
            }
        }
    }

    /// A listing ends where its page ends. Reads following pages ahead.
    pub async fn list(self: &Arc<Self>, dir: &Inode, from: Position<'_>) -> Result<Listing> {
        let deadline = self.start_operation().await?;
        let listing = self.list_from(dir, from, Source::foreground(deadline)).await?;
        Ok(listing.expect("a fetched page gives a listing"))
    }

    /// As [`Tree::list`], without the network.
    pub fn try_list(self: &Arc<Self>, dir: &Inode, from: Position<'_>) -> Option<Result<Listing>> {
        self.run_local(self.list_from(dir, from, Source::Local))
    }

    async fn list_from(
        self: &Arc<Self>,
        dir: &Inode,
        from: Position<'_>,
        source: Source,
    ) -> Result<Option<Listing>> {
        let Some(mut descent) = Descent::begin(dir, from)? else {
            return Ok(Some(Listing::past_the_end(0)));
        };
        loop {
            let page = descent.page;
            let Some(frame) =
                self.frame_from(page.kind(), &page.handle, PAGE_LEN_EXPECTED, source).await?
            else {
                return Ok(None);
            };
            match descent.step(frame)? {
                Step::Down if descent.page.height == 0 => self.prefetch_pages(&descent.siblings),
                Step::Down => {}
                Step::Absent => return Ok(Some(Listing::past_the_end(descent.total))),
                Step::Leaf(page) => {
                    let end = descent.before + page.entries().len() as u64;
                    match descent.listing(page) {
                        Some(listing) => return Ok(Some(listing)),
                        None => match Descent::begin(dir, Position::Number(end))? {
                            Some(next) => descent = next,
                            None => return Ok(Some(Listing::past_the_end(end))),
                        },
                    }
                }
            }
        }
    }

    pub(crate) async fn leaf_span(&self, dir: &Inode, number: u64) -> Result<Option<LeafSpan>> {
        let deadline = self.start_operation().await?;
        let Some(mut descent) = Descent::begin(dir, Position::Number(number))? else {
            return Ok(None);
        };
        while descent.page.height > 0 {
            let page = descent.page;
            let frame = self
                .frame_by(
                    page.kind(),
                    &page.handle,
                    PAGE_LEN_EXPECTED,
                    Priority::Foreground,
                    deadline,
                )
                .await?;
            match descent.step(frame)? {
                Step::Down => {}
                Step::Leaf(_) | Step::Absent => return Ok(None),
            }
        }
        let entries = descent.expected.unwrap_or(0);
        let span = LeafSpan { handle: descent.page.handle, number: descent.before, entries };
        Ok((number < span.number + entries).then_some(span))
    }

    fn prefetch_pages(self: &Arc<Self>, siblings: &[PageRef]) {
        let Some(halfway) = siblings.get((PAGES_AHEAD / 2).min(siblings.len().saturating_sub(1)))
        else {
            return;
        };
        if self.is_in_memory(&halfway.handle) {
            return;
        }
        let pages = siblings.iter().map(|page| (page.kind(), page.handle)).collect();
        self.prefetch(pages, PAGE_LEN_EXPECTED);
    }
}
