//! The hash chain over frames: SHA-256, which outruns BLAKE3 on inputs of this size where the CPU has SHA instructions. Knows nothing of what frames hold.

use sha2::{Digest as _, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// How many bytes of the chain's value each frame carries, so that a break is found at the frame where it is, not at the next seal.
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
        Chain(Sha256::new().chain_update(self.0).chain_update(leaf).finalize().into())
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

/// The hash of a frame (head and body, without its tag): what chain and Merkle tree are made of. The zero in front tells it from a node (RFC 6962, section 2.1).
pub fn leaf(frame: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(frame).finalize().into()
}
