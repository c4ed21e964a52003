//! The hash chain over frames: SHA-256, which outruns BLAKE3 on inputs of this size where the CPU
//! has SHA instructions. Knows nothing of what frames hold.

use sha2::block_api::compress256;
use sha2::{Digest as _, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// How many bytes of the chain's value each frame carries, so that a break is found at the frame
/// where it is, not at the next seal.
pub const TAG_LEN: usize = 8;

/// The value after all frames so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain(pub Hash);

impl Chain {
    /// Before the first frame of a trail.
    pub const START: Chain = Chain([0; 32]);

    /// The value after a frame with this leaf.
    #[must_use]
    pub fn then(self, leaf: &Hash) -> Chain {
        Chain(self.steps(leaf).hash())
    }

    /// Likewise, step by step.
    #[inline]
    pub(crate) fn steps(self, leaf: &Hash) -> Steps<2> {
        Steps::of([&self.0, leaf]).expect("two hashes and what is put behind them are two blocks")
    }

    /// What a frame carries of it.
    pub fn tag(&self) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&self.0[..TAG_LEN]);
        tag
    }
}

/// The hash of what is no frame: of a text that a record speaks of.
pub fn digest(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// The hash of a frame (head and body, without its tag): what chain and Merkle tree are made of.
/// The zero in front tells it from a node (RFC 6962, section 2.1).
pub fn leaf(frame: &[u8]) -> Hash {
    of_parts::<LEAF_BLOCKS, 2>(leaf_parts(frame))
}

/// Likewise, step by step; none of a long frame.
#[inline]
pub(crate) fn leaf_steps(frame: &[u8]) -> Option<Steps<LEAF_BLOCKS>> {
    Steps::of(leaf_parts(frame))
}

#[inline]
fn leaf_parts(frame: &[u8]) -> [&[u8]; 2] {
    [&[0], frame]
}

/// SHA-256 of a few parts, one after the other. Where they fit so many blocks, they are laid out
/// and compressed at once: of inputs this short a third of the time goes into the buffer of a
/// hasher otherwise.
pub(crate) fn of_parts<const BLOCKS: usize, const PARTS: usize>(parts: [&[u8]; PARTS]) -> Hash {
    match Steps::<BLOCKS>::of(parts) {
        Some(steps) => steps.hash(),
        None => parts.into_iter().fold(Sha256::new(), |hasher, part| hasher.chain_update(part)).finalize().into(),
    }
}

/// A hash of so many blocks at most, computed one block at a time. Each block waits for the one
/// before, and takes the CPU longer than its instructions do: who takes steps of several hashes in
/// turn has them at nearly the price of one.
pub(crate) struct Steps<const BLOCKS: usize> {
    blocks: [[u8; BLOCK_LEN]; BLOCKS],
    count: usize,
    done: usize,
    state: [u32; 8],
}

impl<const BLOCKS: usize> Steps<BLOCKS> {
    /// The hash of these parts, none of it done; none if they don't fit with what is put behind
    /// them (FIPS 180-4, section 5.1.1).
    #[inline]
    pub(crate) fn of<const PARTS: usize>(parts: [&[u8]; PARTS]) -> Option<Self> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let count = (len + 1 + LEN_LEN).div_ceil(BLOCK_LEN);
        if count > BLOCKS {
            return None;
        }
        let mut steps = Steps { blocks: [[0; BLOCK_LEN]; BLOCKS], count, done: 0, state: START };
        let bytes = steps.blocks.as_flattened_mut();
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        bytes[len] = 0x80;
        bytes[count * BLOCK_LEN - LEN_LEN..count * BLOCK_LEN].copy_from_slice(&(len as u64 * 8).to_be_bytes());
        Some(steps)
    }

    /// Compresses the next block. False if there was none left.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let Some(block) = self.blocks[..self.count].get(self.done) else { return false };
        compress256(&mut self.state, std::slice::from_ref(block));
        self.done += 1;
        true
    }

    /// Does what is left.
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

/// FIPS 180-4, section 5.3.3.
const START: [u32; 8] = [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
const BLOCK_LEN: usize = 64;
/// Bytes that say how long the message is, at the end of the last block.
const LEN_LEN: usize = 8;
/// Most frames fit these.
pub(crate) const LEAF_BLOCKS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hash_as_their_whole_does_at_each_length() {
        let bytes: Vec<u8> = (0..400u32).map(|number| (number * 7) as u8).collect();
        for len in 0..bytes.len() {
            let wanted = digest(&bytes[..len]);
            let (one, two) = bytes[..len].split_at(len / 3);
            assert_eq!(of_parts::<2, 2>([one, two]), wanted, "{len}");
            assert_eq!(of_parts::<5, 3>([&[], &bytes[..len], &[]]), wanted, "{len}");
            for count in 0..4 {
                let Some(mut steps) = Steps::<5>::of([one, two]) else { continue };
                (0..count).for_each(|_| _ = steps.step());
                assert_eq!(steps.hash(), wanted, "{len} after {count} steps");
            }
        }
    }
}
