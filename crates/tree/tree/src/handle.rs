//! Handles of frames: hashes under a key of the tree.

use core::fmt;

/// Keyed BLAKE3 of a stored frame (SFSRO paper: SHA-1(iv, x), §3.2). With an iv per tree, a
/// collision for one tree is useless for others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHandle([u8; 32]);

impl BlockHandle {
    /// Bytes.
    pub const LEN: usize = 32;

    /// Any 32 bytes are a handle.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash, as on the wire.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Big-endian, from the first eight bytes, uniformly distributed.
    pub const fn prefix(&self) -> u64 {
        let b = &self.0;
        u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

impl fmt::Display for BlockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for BlockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BlockHandle({:02x}{:02x}{:02x}{:02x}…)",
            self.0[0], self.0[1], self.0[2], self.0[3]
        )
    }
}

/// Initialization vector of a tree: 32 public random bytes, drawn with its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iv([u8; 32]);

impl Iv {
    /// Any 32 bytes are valid.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// As on the wire.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Hashes a stored frame.
    pub fn handle_of(&self, frame: &[u8]) -> BlockHandle {
        BlockHandle(*blake3::keyed_hash(&self.0, frame).as_bytes())
    }
}
