//! How often each page of a file was written, for all who read and write it at once: whoever reads a block knows what has to be in it, and a write
//! that was acknowledged and lost is found out. Knows nothing of how blocks are read.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::content::{PAGE_LEN, Pages};

/// The pages of a file: of each how often it was written, whether somebody works on it, and whether it may also be as it was at an earlier write.
#[derive(Debug)]
pub(crate) struct Written(Vec<AtomicU32>);

/// A block, while somebody works on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// Its first page.
    page: u64,
    /// Pages of it.
    pages: u64,
    /// Whether nobody else works on it.
    alone: bool,
}

impl Block {
    /// Where it begins.
    pub(crate) const fn offset(self) -> u64 {
        self.page * PAGE_LEN as u64
    }
}

impl Written {
    /// Of a file of that length, which was just made.
    pub(crate) fn new(len: u64) -> Self {
        Self((0..len.div_ceil(PAGE_LEN as u64)).map(|_| AtomicU32::new(0)).collect())
    }

    /// Takes block `number` of that length, or one behind it that nobody works on. Of a file with hardly more blocks than calls there may be none: then
    /// it is shared, and any of what was written to it may be in it from then on.
    pub(crate) fn take(&self, number: u64, block_len: u64, blocks: u64) -> (u64, Block) {
        let pages = (block_len / PAGE_LEN as u64).max(1);
        for step in 0..blocks.min(TRIES) {
            let number = (number + step) % blocks;
            let first = &self.0[(number * pages) as usize];
            if first.fetch_or(HELD, Ordering::AcqRel) & HELD == 0 {
                return (number, Block { page: number * pages, pages, alone: true });
            }
        }
        let block = Block { page: number * pages, pages, alone: false };
        self.doubt(block);
        (number, block)
    }

    /// What is to be written to it.
    pub(crate) fn fill(&self, pages: &Pages, file: u64, block: Block, bytes: &mut [u8]) {
        // Who shares it has counted when the block was taken.
        let next = u32::from(block.alone);
        pages.fill_anew(file, block.offset(), bytes, &|page| self.count(page) + next);
    }

    /// Whether this was read from it.
    pub(crate) fn holds(&self, pages: &Pages, file: u64, block: Block, bytes: &[u8]) -> bool {
        bytes.len() as u64 == block.pages * PAGE_LEN as u64
            // Who had it before it was shared may be writing what is not counted yet.
            && bytes.chunks(PAGE_LEN).zip(block.page..).all(|(chunk, page)| match self.0[page as usize].load(Ordering::Acquire) {
                state if state & DOUBTED != 0 => pages.generation(file, page, chunk).is_some_and(|found| found <= (state & COUNT) + 1),
                state => pages.is(file, page, state & COUNT, chunk),
            })
    }

    /// It was written, and that is acknowledged.
    pub(crate) fn wrote(&self, block: Block) {
        if block.alone {
            self.each(block, |page| {
                page.fetch_add(1, Ordering::AcqRel);
            });
        }
    }

    /// It was written, or not: nobody says.
    pub(crate) fn doubt(&self, block: Block) {
        self.each(block, |page| {
            page.fetch_add(1, Ordering::AcqRel);
            page.fetch_or(DOUBTED, Ordering::AcqRel);
        });
    }

    /// Gives it back.
    pub(crate) fn give_back(&self, block: Block) {
        if block.alone {
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

/// Somebody works on the block that begins with this page.
const HELD: u32 = 1 << 31;
/// It may be as it was at any write so far.
const DOUBTED: u32 = 1 << 30;
/// Writes so far: a page would have to be written a billion times in a run to reach the marks.
const COUNT: u32 = DOUBTED - 1;
/// Blocks that are tried: the most calls in flight of a session.
const TRIES: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_was_lost_is_found_out_and_one_in_doubt_is_not_held_against_anybody() {
        let (pages, written) = (Pages::new(), Written::new(8 * PAGE_LEN as u64));
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
    fn nobody_works_where_another_does_unless_there_is_no_room() {
        let written = Written::new(2 * PAGE_LEN as u64);
        let (one, first) = written.take(0, PAGE_LEN as u64, 2);
        let (two, second) = written.take(0, PAGE_LEN as u64, 2);
        assert_eq!((one, two, first.alone, second.alone), (0, 1, true, true));
        let (_, shared) = written.take(0, PAGE_LEN as u64, 2);
        assert!(!shared.alone);
        written.give_back(shared);
        written.give_back(second);
        assert_eq!(written.take(0, PAGE_LEN as u64, 2).0, 1);
    }
}
