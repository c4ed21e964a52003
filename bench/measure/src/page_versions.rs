//! Number of writes to each page of a file, shared by all threads: a reader detects a lost
//! acknowledged write.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::case::Load;
use crate::content::{PAGE_LEN, Pages};

/// For each page: number of writes, lock, and mark of an unanswered write.
#[derive(Debug)]
pub(crate) struct PageVersions(Vec<AtomicU32>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    page: u64,
    pages: u64,
    locked: bool,
}

impl Block {
    pub(crate) const fn offset(self) -> u64 {
        self.page * PAGE_LEN as u64
    }
}

/// Maximum calls in flight on a load's file. A call that may write locks its block.
pub(crate) fn in_flight_max(load: &Load) -> u32 {
    if load.read_percent == 100 {
        load.depth
    } else {
        load.depth.min(u32::try_from(blocks(load)).unwrap_or(u32::MAX))
    }
}

pub(crate) fn blocks(load: &Load) -> u64 {
    (load.file_len / u64::from(load.block)).max(1)
}

impl PageVersions {
    pub(crate) fn new(len: u64) -> Self {
        Self((0..len.div_ceil(PAGE_LEN as u64)).map(|_| AtomicU32::new(0)).collect())
    }

    /// Block `number`, or the next free one. One exists: there are no more calls than blocks
    /// ([`in_flight_max`]).
    pub(crate) fn take(&self, number: u64, block_len: u64, blocks: u64) -> (u64, Block) {
        let pages = pages_of(block_len);
        let mut number = number % blocks;
        loop {
            let first = &self.0[(number * pages) as usize];
            if first.fetch_or(LOCKED, Ordering::AcqRel) & LOCKED == 0 {
                return (number, Block { page: number * pages, pages, locked: true });
            }
            number = (number + 1) % blocks;
        }
    }

    pub(crate) fn share(number: u64, block_len: u64) -> Block {
        let pages = pages_of(block_len);
        Block { page: number * pages, pages, locked: false }
    }

    pub(crate) fn fill(&self, pages: &Pages, file: u64, block: Block, bytes: &mut [u8]) {
        assert!(block.locked, "only a locked block is written");
        pages.fill_version(file, block.offset(), bytes, &|page| self.count(page) + 1);
    }

    /// Checks a page with an unanswered write for its place only.
    pub(crate) fn holds(&self, pages: &Pages, file: u64, block: Block, bytes: &[u8]) -> bool {
        bytes.len() as u64 == block.pages * PAGE_LEN as u64
            && bytes.chunks(PAGE_LEN).zip(block.page..).all(|(chunk, page)| {
                match self.0[page as usize].load(Ordering::Acquire) {
                    state if state & UNANSWERED != 0 => pages.is_at_place(file, page, chunk),
                    state => pages.is_page(file, page, state & COUNT, chunk),
                }
            })
    }

    pub(crate) fn acknowledge(&self, block: Block) {
        self.each(block, |page| {
            page.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// The server may do this write at any time.
    pub(crate) fn mark_unanswered(&self, block: Block) {
        self.each(block, |page| {
            page.fetch_add(1, Ordering::AcqRel);
            page.fetch_or(UNANSWERED, Ordering::AcqRel);
        });
    }

    pub(crate) fn release(&self, block: Block) {
        if block.locked {
            self.0[block.page as usize].fetch_and(!LOCKED, Ordering::AcqRel);
        }
    }

    fn count(&self, page: u64) -> u32 {
        self.0[page as usize].load(Ordering::Acquire) & COUNT
    }

    fn each(&self, block: Block, change: impl Fn(&AtomicU32)) {
        (block.page..block.page + block.pages).for_each(|page| change(&self.0[page as usize]));
    }
}

const fn pages_of(block_len: u64) -> u64 {
    if block_len < PAGE_LEN as u64 { 1 } else { block_len / PAGE_LEN as u64 }
}

const LOCKED: u32 = 1 << 31;
const UNANSWERED: u32 = 1 << 30;
const COUNT: u32 = UNANSWERED - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_lost_write_but_not_unanswered_one() {
        let (pages, written) = (Pages::new(), PageVersions::new(8 * PAGE_LEN as u64));
        let mut bytes = vec![0; 2 * PAGE_LEN];
        let (number, block) = written.take(1, 2 * PAGE_LEN as u64, 4);
        assert_eq!((number, block.offset()), (1, 2 * PAGE_LEN as u64));
        pages.fill_version(5, block.offset(), &mut bytes, &|_| 0);
        assert!(written.holds(&pages, 5, block, &bytes));
        let before = bytes.clone();
        written.fill(&pages, 5, block, &mut bytes);
        assert!(!written.holds(&pages, 5, block, &bytes));
        written.acknowledge(block);
        assert!(
            written.holds(&pages, 5, block, &bytes) && !written.holds(&pages, 5, block, &before)
        );
        bytes[..PAGE_LEN].copy_from_slice(&before[..PAGE_LEN]);
        assert!(!written.holds(&pages, 5, block, &bytes));
        written.mark_unanswered(block);
        assert!(
            written.holds(&pages, 5, block, &bytes) && written.holds(&pages, 5, block, &before)
        );
        bytes[0] ^= 1;
        assert!(!written.holds(&pages, 5, block, &bytes));
    }

    #[test]
    fn accepts_page_torn_by_unanswered_write() {
        let (pages, written) = (Pages::new(), PageVersions::new(PAGE_LEN as u64));
        let (_, block) = written.take(0, PAGE_LEN as u64, 1);
        let (mut old, mut new) = (vec![0; PAGE_LEN], vec![0; PAGE_LEN]);
        pages.fill_version(5, 0, &mut old, &|_| 0);
        written.fill(&pages, 5, block, &mut new);
        new[2048..].copy_from_slice(&old[2048..]);
        assert!(!written.holds(&pages, 5, block, &new));
        written.mark_unanswered(block);
        assert!(written.holds(&pages, 5, block, &new));
        written.acknowledge(block);
        assert!(written.holds(&pages, 5, block, &new));
    }

    #[test]
    fn locked_block_has_one_user() {
        let block = PAGE_LEN as u32;
        for (read_percent, blocks, lanes) in [(0, 2, 2), (50, 2, 2), (100, 2, 8), (50, 100, 8)] {
            let load = Load {
                block,
                read_percent,
                depth: 8,
                file_len: blocks * PAGE_LEN as u64,
                ..Load::READS
            };
            assert_eq!(in_flight_max(&load), lanes);
        }
        let written = PageVersions::new(2 * PAGE_LEN as u64);
        let working = [0; 2].map(|_: u32| AtomicU32::new(0));
        std::thread::scope(|scope| {
            for lane in 0..2 {
                let (written, working) = (&written, &working);
                scope.spawn(move || {
                    for turn in 0..10_000 {
                        let (number, block) = written.take((lane + turn) % 2, PAGE_LEN as u64, 2);
                        assert_eq!(working[number as usize].fetch_add(1, Ordering::AcqRel), 0);
                        working[number as usize].fetch_sub(1, Ordering::AcqRel);
                        written.release(block);
                    }
                });
            }
        });
    }
}
