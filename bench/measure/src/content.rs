//! Each page is noise that starts with the numbers of its file, its page and its write.

use crate::case::Content;

pub const PAGE_LEN: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) struct Pages {
    pool: std::sync::Arc<[u8]>,
}

impl Pages {
    /// The same noise in every run: nodes must agree on it.
    pub(crate) fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Self { pool: words.take(POOL_LEN / 8).flat_map(u64::to_le_bytes).collect() }
    }

    pub(crate) fn fill(&self, content: Content, file: u64, offset: u64, bytes: &mut [u8]) {
        match content {
            Content::Zeros => bytes.fill(0),
            Content::Random => self.fill_version(file, offset, bytes, &|_| 0),
        }
    }

    pub(crate) fn fill_version(
        &self,
        file: u64,
        offset: u64,
        bytes: &mut [u8],
        generation: &dyn Fn(u64) -> u32,
    ) {
        for (chunk, page) in bytes.chunks_mut(PAGE_LEN).zip(offset / PAGE_LEN as u64..) {
            let generation = generation(page);
            chunk.copy_from_slice(&self.noise(file, page, generation)[..chunk.len()]);
            let head = head(file, page, generation);
            let len = head.len().min(chunk.len());
            chunk[..len].copy_from_slice(&head[..len]);
        }
    }

    /// Compares with the page after `generation` writes.
    pub(crate) fn is_page(&self, file: u64, page: u64, generation: u32, bytes: &[u8]) -> bool {
        let head = head(file, page, generation);
        let len = head.len().min(bytes.len());
        bytes[..len] == head[..len]
            && bytes[len..] == self.noise(file, page, generation)[len..bytes.len()]
    }

    /// Accepts the page after any number of writes.
    pub(crate) fn is_at_place(&self, file: u64, page: u64, bytes: &[u8]) -> bool {
        let head = head(file, page, 0);
        bytes.len() == PAGE_LEN && bytes[..16] == head[..16]
    }

    pub(crate) fn matches(&self, content: Content, file: u64, offset: u64, bytes: &[u8]) -> bool {
        if content == Content::Zeros {
            return bytes.chunks(PAGE_LEN).all(|chunk| chunk == &ZEROS[..chunk.len()]);
        }
        bytes
            .chunks(PAGE_LEN)
            .zip(offset / PAGE_LEN as u64..)
            .all(|(chunk, page)| self.is_page(file, page, 0, chunk))
    }

    fn noise(&self, file: u64, page: u64, generation: u32) -> &[u8] {
        let start = mix(file.rotate_left(32) ^ page ^ u64::from(generation) << 40) as usize
            % (POOL_LEN - PAGE_LEN);
        &self.pool[start..start + PAGE_LEN]
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self::new()
    }
}

fn head(file: u64, page: u64, generation: u32) -> [u8; 20] {
    let mut head = [0; 20];
    head[..8].copy_from_slice(&file.to_le_bytes());
    head[8..16].copy_from_slice(&page.to_le_bytes());
    head[16..].copy_from_slice(&generation.to_le_bytes());
    head
}

pub(crate) const fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fits a core's cache together with the data that it is compared with.
const POOL_LEN: usize = 256 * 1024;
static ZEROS: [u8; PAGE_LEN] = [0; PAGE_LEN];

/// A Feistel network over the next power of two, repeated until the value is in range.
pub(crate) fn shuffled(at: u64, count: u64, seed: u64) -> u64 {
    let seed = seed ^ mix(at / count);
    let half = (u64::BITS - count.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut place = at % count;
    loop {
        let (mut left, mut right) = (place >> half, place & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (mix(right ^ mix(seed.wrapping_add(round))) & mask));
        }
        place = left << half | right;
        if place < count {
            return place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_data_of_another_place() {
        let pages = Pages::new();
        let mut bytes = vec![0; 3 * PAGE_LEN + 100];
        pages.fill(Content::Random, 7, 8192, &mut bytes);
        assert!(pages.matches(Content::Random, 7, 8192, &bytes));
        assert!(!pages.matches(Content::Random, 8, 8192, &bytes));
        assert!(!pages.matches(Content::Random, 7, 4096, &bytes));
        for at in [0, 15, 16, 4095, 4096, 3 * PAGE_LEN + 99] {
            bytes[at] ^= 1;
            assert!(!pages.matches(Content::Random, 7, 8192, &bytes), "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn detects_data_of_earlier_write() {
        let (pages, mut bytes) = (Pages::new(), vec![0; 2 * PAGE_LEN]);
        pages.fill_version(7, 8192, &mut bytes, &|page| page as u32);
        assert!(
            pages.is_page(7, 2, 2, &bytes[..PAGE_LEN])
                && pages.is_page(7, 3, 3, &bytes[PAGE_LEN..])
        );
        assert!(
            pages.is_at_place(7, 2, &bytes[..PAGE_LEN])
                && !pages.is_at_place(7, 3, &bytes[..PAGE_LEN])
                && !pages.is_at_place(8, 2, &bytes[..PAGE_LEN])
        );
        assert!(!pages.is_page(7, 2, 1, &bytes[..PAGE_LEN]));
        bytes[4000] ^= 1;
        assert!(!pages.is_page(7, 2, 2, &bytes[..PAGE_LEN]));
        let mut other = vec![0; PAGE_LEN];
        pages.fill_version(7, 8192, &mut other, &|_| 9);
        assert!(bytes[100..200] != other[100..200]);
    }

    #[test]
    fn zero_content_is_only_zeros() {
        let pages = Pages::new();
        let mut bytes = vec![9; 5000];
        pages.fill(Content::Zeros, 1, 0, &mut bytes);
        assert!(pages.matches(Content::Zeros, 1, 0, &bytes));
        bytes[4999] = 1;
        assert!(!pages.matches(Content::Zeros, 1, 0, &bytes));
    }

    #[test]
    fn shuffle_is_permutation_that_depends_on_seed_and_pass() {
        for count in (1..70).chain([1000, 1024, 1025]) {
            let order = |from: u64, seed| {
                (from..from + count).map(|at| shuffled(at, count, seed)).collect::<Vec<_>>()
            };
            let mut sorted = order(0, 7);
            sorted.sort_unstable();
            assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            if count >= 1000 {
                assert!(
                    order(0, 7) != order(0, 8)
                        && order(0, 7) != order(count, 7)
                        && order(0, 7) != sorted
                );
            }
        }
    }
}
