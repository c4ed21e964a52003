//! File data that tells where it belongs, so that every byte that is read can be checked: pages of noise, each a different piece, with
//! the file's number and the page's at its front. Zeros where a document has zeros.

use crate::case::Content;

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;

/// Makes and knows the data of files.
#[derive(Debug, Clone)]
pub struct Pages {
    pool: std::sync::Arc<[u8]>,
}

impl Pages {
    /// With the noise of all runs: nodes must agree on it.
    pub fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Self { pool: words.take(POOL_LEN / 8).flat_map(u64::to_le_bytes).collect() }
    }

    /// Fills `bytes` with what file `file` has at `offset`, which begins a page.
    pub fn fill(&self, content: Content, file: u64, offset: u64, bytes: &mut [u8]) {
        if content == Content::Zeros {
            return bytes.fill(0);
        }
        for (chunk, page) in bytes.chunks_mut(PAGE_LEN).zip(offset / PAGE_LEN as u64..) {
            chunk.copy_from_slice(&self.noise(file, page)[..chunk.len()]);
            let head = head(file, page);
            let len = head.len().min(chunk.len());
            chunk[..len].copy_from_slice(&head[..len]);
        }
    }

    /// Whether `bytes` are what file `file` has at `offset`, which begins a page.
    pub fn are(&self, content: Content, file: u64, offset: u64, bytes: &[u8]) -> bool {
        if content == Content::Zeros {
            return bytes.chunks(PAGE_LEN).all(|chunk| chunk == &ZEROS[..chunk.len()]);
        }
        bytes.chunks(PAGE_LEN).zip(offset / PAGE_LEN as u64..).all(|(chunk, page)| {
            let head = head(file, page);
            let len = head.len().min(chunk.len());
            chunk[..len] == head[..len] && chunk[len..] == self.noise(file, page)[len..chunk.len()]
        })
    }

    fn noise(&self, file: u64, page: u64) -> &[u8] {
        let start = mix(file.rotate_left(32) ^ page) as usize % (POOL_LEN - PAGE_LEN);
        &self.pool[start..start + PAGE_LEN]
    }
}

impl Default for Pages {
    fn default() -> Self {
        Self::new()
    }
}

fn head(file: u64, page: u64) -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&file.to_le_bytes());
    head[8..].copy_from_slice(&page.to_le_bytes());
    head
}

/// The mixing function of splitmix64.
pub(crate) const fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Fits a core's own cache beside what is compared with it.
const POOL_LEN: usize = 256 * 1024;
static ZEROS: [u8; PAGE_LEN] = [0; PAGE_LEN];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_another_place_is_told_from_the_right_one() {
        let pages = Pages::new();
        let mut bytes = vec![0; 3 * PAGE_LEN + 100];
        pages.fill(Content::Random, 7, 8192, &mut bytes);
        assert!(pages.are(Content::Random, 7, 8192, &bytes));
        assert!(!pages.are(Content::Random, 8, 8192, &bytes));
        assert!(!pages.are(Content::Random, 7, 4096, &bytes));
        for at in [0, 15, 16, 4095, 4096, 3 * PAGE_LEN + 99] {
            bytes[at] ^= 1;
            assert!(!pages.are(Content::Random, 7, 8192, &bytes), "byte {at}");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn zeros_are_zeros_alone() {
        let pages = Pages::new();
        let mut bytes = vec![9; 5000];
        pages.fill(Content::Zeros, 1, 0, &mut bytes);
        assert!(pages.are(Content::Zeros, 1, 0, &bytes));
        bytes[4999] = 1;
        assert!(!pages.are(Content::Zeros, 1, 0, &bytes));
    }
}
