//! SHA-256, because with SHA instructions it is faster than BLAKE3 on inputs this short.

use sha2::block_api::compress256;
use sha2::{Digest as _, Sha256};

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// The tag locates a break at its frame, before the next seal.
pub(crate) const TAG_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain(pub Hash);

impl Chain {
    pub(crate) const START: Chain = Chain([0; 32]);

    #[must_use]
    pub(crate) fn extend(self, leaf: &Hash) -> Chain {
        Chain(self.steps(leaf).hash())
    }

    #[inline]
    pub(crate) fn steps(self, leaf: &Hash) -> BlockHasher<2> {
        BlockHasher::of([&self.0, leaf]).expect("two hashes and their padding fit in two blocks")
    }

    pub(crate) fn tag(&self) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&self.0[..TAG_LEN]);
        tag
    }
}

/// Hashes bytes that are not a frame, such as a rule file.
pub fn digest(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// Hashes head and body. The leading zero byte separates leaves from inner nodes (RFC 6962 §2.1).
pub(crate) fn leaf_hash(frame: &[u8]) -> Hash {
    hash_parts::<LEAF_BLOCKS, 2>(leaf_parts(frame))
}

#[inline]
pub(crate) fn leaf_hasher(frame: &[u8]) -> Option<BlockHasher<LEAF_BLOCKS>> {
    BlockHasher::of(leaf_parts(frame))
}

#[inline]
fn leaf_parts(frame: &[u8]) -> [&[u8]; 2] {
    [&[0], frame]
}

/// Short input skips the buffer of [`Sha256`].
pub(crate) fn hash_parts<const BLOCKS: usize, const PARTS: usize>(parts: [&[u8]; PARTS]) -> Hash {
    match BlockHasher::<BLOCKS>::of(parts) {
        Some(steps) => steps.hash(),
        None => parts
            .into_iter()
            .fold(Sha256::new(), |hasher, part| hasher.chain_update(part))
            .finalize()
            .into(),
    }
}

/// One block at a time: the blocks of one hash depend on each other, so alternating between hashes
/// uses the CPU better.
pub(crate) struct BlockHasher<const BLOCKS: usize> {
    blocks: [[u8; BLOCK_LEN]; BLOCKS],
    count: usize,
    done: usize,
    state: [u32; 8],
}

impl<const BLOCKS: usize> BlockHasher<BLOCKS> {
    /// Pads `parts` (FIPS 180-4 §5.1.1). `None` if they need more than `BLOCKS` blocks.
    #[inline]
    pub(crate) fn of<const PARTS: usize>(parts: [&[u8]; PARTS]) -> Option<Self> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let count = (len + 1 + LEN_LEN).div_ceil(BLOCK_LEN);
        if count > BLOCKS {
            return None;
        }
        let mut steps =
            BlockHasher { blocks: [[0; BLOCK_LEN]; BLOCKS], count, done: 0, state: START };
        let bytes = steps.blocks.as_flattened_mut();
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes[len] = 0x80;
        bytes[count * BLOCK_LEN - LEN_LEN..count * BLOCK_LEN]
            .copy_from_slice(&(len as u64 * 8).to_be_bytes());
        Some(steps)
    }

    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let Some(block) = self.blocks[..self.count].get(self.done) else { return false };
        compress256(&mut self.state, std::slice::from_ref(block));
        self.done += 1;
        true
    }

    #[inline]
    pub(crate) fn hash(mut self) -> Hash {
        compress256(&mut self.state, &self.blocks[self.done..self.count]);
        let mut hash = [0; 32];
        for (bytes, word) in hash.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        hash
    }
}

/// FIPS 180-4 §5.3.3.
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
const BLOCK_LEN: usize = 64;
const LEN_LEN: usize = 8;
pub(crate) const LEAF_BLOCKS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hash_like_their_concatenation() {
        let bytes: Vec<u8> = (0..400u32).map(|number| (number * 7) as u8).collect();
        for len in 0..bytes.len() {
            let wanted = digest(&bytes[..len]);
            let (one, two) = bytes[..len].split_at(len / 3);
            assert_eq!(hash_parts::<2, 2>([one, two]), wanted, "{len}");
            assert_eq!(hash_parts::<5, 3>([&[], &bytes[..len], &[]]), wanted, "{len}");
            for count in 0..4 {
                let Some(mut steps) = BlockHasher::<5>::of([one, two]) else { continue };
                (0..count).for_each(|_| _ = steps.step());
                assert_eq!(steps.hash(), wanted, "{len} after {count} steps");
            }
        }
    }
}
