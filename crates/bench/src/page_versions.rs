//! How often each page of a file was written, for all who read and write it at once: whoever reads
//! a block knows what has to be in it, and a write that was acknowledged and lost is found out.
//! Knows nothing of how blocks are read.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::case::Load;
use crate::content::{PAGE_LEN, Pages};

/// The pages of a file: of each how often it was written, whether somebody works on it, and whether
/// a write to it may be under way still.
#[derive(Debug)]
pub(crate) struct PageVersions(Vec<AtomicU32>);

/// A block, while somebody works on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// Its first page.
    page: u64,
    /// Pages of it.
    pages: u64,
    /// Whether nobody else works on it until it is given back.
    held: bool,
}

impl Block {
    /// Where it begins.
    pub(crate) const fn offset(self) -> u64 {
        self.page * PAGE_LEN as u64
    }
}

/// Calls that may be in flight on the file of a load. A read that meets a write of the same block
/// may find some of both, so that no two share one where anything is written: of a file with fewer
/// blocks than calls, the others are not made.
pub(crate) fn in_flight_max(load: &Load) -> u32 {
    if load.read_percent == 100 { load.depth } else { load.depth.min(u32::try_from(blocks(load)).unwrap_or(u32::MAX)) }
}

/// Blocks of the file of a load.
pub(crate) fn blocks(load: &Load) -> u64 {
    (load.file_len / u64::from(load.block)).max(1)
}

impl PageVersions {
    /// Of a file of that length, which was just made.
    pub(crate) fn new(len: u64) -> Self {
        Self((0..len.div_ceil(PAGE_LEN as u64)).map(|_| AtomicU32::new(0)).collect())
    }

    /// Takes block `number` of that length, or one behind it that nobody works on, of so many. Of
    /// those who take one at the same time there are no more than blocks ([`in_flight_max`]):
    /// one is always free, and who comes too late for it goes round again.
    pub(crate) fn take(&self, number: u64, block_len: u64, blocks: u64) -> (u64, Block) {
        let pages = pages_of(block_len);
        let mut number = number % blocks;
        loop {
            let first = &self.0[(number * pages) as usize];
            if first.fetch_or(HELD, Ordering::AcqRel) & HELD == 0 {
                return (number, Block { page: number * pages, pages, held: true });
            }
            number = (number + 1) % blocks;
        }
    }

    /// Block `number` of that length, for who reads it while nobody writes to the file.
    pub(crate) fn share(number: u64, block_len: u64) -> Block {
        let pages = pages_of(block_len);
        Block { page: number * pages, pages, held: false }
    }

    /// What is to be written to it.
    pub(crate) fn fill(&self, pages: &Pages, file: u64, block: Block, bytes: &mut [u8]) {
        assert!(block.held, "what others read is not written");
        pages.fill_anew(file, block.offset(), bytes, &|page| self.count(page) + 1);
    }

    /// Whether this was read from it. A write that nobody answered may be done at any time, also
    /// while the page is read: of such a page no more is known than its place.
    pub(crate) fn holds(&self, pages: &Pages, file: u64, block: Block, bytes: &[u8]) -> bool {
        bytes.len() as u64 == block.pages * PAGE_LEN as u64
            && bytes.chunks(PAGE_LEN).zip(block.page..).all(|(chunk, page)| match self.0[page as usize].load(Ordering::Acquire) {
                state if state & DOUBTED != 0 => pages.is_at(file, page, chunk),
                state => pages.is(file, page, state & COUNT, chunk),
            })
    }

    /// It was written, and that is acknowledged.
    pub(crate) fn wrote(&self, block: Block) {
        self.each(block, |page| {
            page.fetch_add(1, Ordering::AcqRel);
        });
    }

    /// It was written, or not, or will be: nobody says.
    pub(crate) fn doubt(&self, block: Block) {
        self.each(block, |page| {
            page.fetch_add(1, Ordering::AcqRel);
            page.fetch_or(DOUBTED, Ordering::AcqRel);
        });
    }

    /// Gives it back.
    pub(crate) fn give_back(&self, block: Block) {
        if block.held {
            self.0[block.page as usize].fetch_and(!HELD, Ordering::AcqRel);
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

/// Somebody works on the block that begins with this page.
const HELD: u32 = 1 << 31;
/// A write to it had no answer.
const DOUBTED: u32 = 1 << 30;
/// Writes so far: a page would have to be written a billion times in a run to reach the marks.
const COUNT: u32 = DOUBTED - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_lost_is_found_out_and_one_in_doubt_is_not_held_against_anybody() {
        let (pages, written) = (Pages::new(), PageVersions::new(8 * PAGE_LEN as u64));
        let mut bytes = vec![0; 2 * PAGE_LEN];
        let (number, block) = written.take(1, 2 * PAGE_LEN as u64, 4);
        assert_eq!((number, block.offset()), (1, 2 * PAGE_LEN as u64));
        pages.fill_anew(5, block.offset(), &mut bytes, &|_| 0);
        assert!(written.holds(&pages, 5, block, &bytes));
        let before = bytes.clone();
        written.fill(&pages, 5, block, &mut bytes);
        // Not before it is acknowledged.
        assert!(!written.holds(&pages, 5, block, &bytes));
        written.wrote(block);
        assert!(written.holds(&pages, 5, block, &bytes) && !written.holds(&pages, 5, block, &before));
        // One page of the two was lost.
        bytes[..PAGE_LEN].copy_from_slice(&before[..PAGE_LEN]);
        assert!(!written.holds(&pages, 5, block, &bytes));
        written.doubt(block);
        assert!(written.holds(&pages, 5, block, &bytes) && written.holds(&pages, 5, block, &before));
        bytes[0] ^= 1;
        assert!(!written.holds(&pages, 5, block, &bytes));
    }

    #[test]
    fn a_page_that_a_late_write_is_done_to_while_it_is_read_is_held_against_nobody() {
        let (pages, written) = (Pages::new(), PageVersions::new(PAGE_LEN as u64));
        let (_, block) = written.take(0, PAGE_LEN as u64, 1);
        let (mut old, mut new) = (vec![0; PAGE_LEN], vec![0; PAGE_LEN]);
        pages.fill_anew(5, 0, &mut old, &|_| 0);
        written.fill(&pages, 5, block, &mut new);
        new[2048..].copy_from_slice(&old[2048..]);
        assert!(!written.holds(&pages, 5, block, &new));
        written.doubt(block);
        assert!(written.holds(&pages, 5, block, &new));
        // Nor while the next is written that is answered.
        written.wrote(block);
        assert!(written.holds(&pages, 5, block, &new));
    }

    #[test]
    fn nobody_works_where_another_writes_however_few_blocks_there_are() {
        let (order, block) = (crate::case::Order::Random, PAGE_LEN as u32);
        for (read_percent, blocks, lanes) in [(0, 2, 2), (50, 2, 2), (100, 2, 8), (50, 100, 8)] {
            let load = Load { order, block, read_percent, depth: 8, rate: None, seconds: 1.0, file_len: blocks * PAGE_LEN as u64 };
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
                        written.give_back(block);
                    }
                });
            }
        });
    }
}
