//! Merkle trees of RFC 6962 with SHA-256: hashes, inclusion proofs and consistency proofs.

use data_encoding::BASE64;
use sha2::{Digest, Sha256};

/// Hashes of a proof, and so the height of a tree, at most (C2SP tlog-witness).
pub const PROOF_LEN_MAX: usize = 63;

/// Entries of a log at most: Go's logs count in 63 bits.
pub const TREE_SIZE_MAX: u64 = i64::MAX as u64;

/// SHA-256 of a leaf, a node or a whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Root of the tree without entries: the hash of the empty string.
    pub const EMPTY_TREE: Self = Self([
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9,
        0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52,
        0xb8, 0x55,
    ]);

    /// RFC 6962 §2.1: the hash of an entry.
    pub fn leaf(entry: &[u8]) -> Self {
        Self(Sha256::new().chain_update([0]).chain_update(entry).finalize().into())
    }

    /// RFC 6962 §2.1: the hash of a node with two children.
    pub fn node(left: Self, right: Self) -> Self {
        let hasher = Sha256::new().chain_update([1]);
        Self(hasher.chain_update(left.0).chain_update(right.0).finalize().into())
    }

    /// 44 characters of base64, strictly.
    pub fn from_base64(text: &str) -> Option<Self> {
        if text.len() != 44 {
            return None;
        }
        crate::base64::decode(text)?.try_into().ok().map(Self)
    }

    /// As checkpoints and proofs have it.
    pub fn to_base64(self) -> String {
        BASE64.encode(&self.0)
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Why a proof does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum ProofError {
    #[error("entry {index} lies outside a tree of {size} entries")]
    Index { index: u64, size: u64 },
    #[error("a tree of {old} entries is no earlier state of one of {new}")]
    Sizes { old: u64, new: u64 },
    #[error("the proof has {found} hashes instead of {needed}")]
    Length { found: usize, needed: usize },
    #[error("the proof leads to another root hash than the checkpoint's")]
    Root,
    #[error("the proof does not lead from the earlier root hash")]
    OldRoot,
}

/// RFC 9162 §2.1.3.2: verifies that `leaf` is entry `index` of the tree.
pub fn verify_inclusion(
    leaf: Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: Hash,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::Index { index, size });
    }
    let needed = inclusion_len(index, size);
    if proof.len() != needed {
        return Err(ProofError::Length { found: proof.len(), needed });
    }
    let (mut node, mut last, mut hash) = (index, size - 1, leaf);
    for &sibling in proof {
        if node & 1 == 1 || node == last {
            hash = Hash::node(sibling, hash);
            // A node without a right sibling has the hash of its only child.
            while node & 1 == 0 && node != 0 {
                (node, last) = (node >> 1, last >> 1);
            }
        } else {
            hash = Hash::node(hash, sibling);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    if hash == root { Ok(()) } else { Err(ProofError::Root) }
}

/// Levels on which the path of `index` and that of the last entry differ have a sibling each;
/// above, only the left siblings of the last entry's path remain.
fn inclusion_len(index: u64, size: u64) -> usize {
    let inner = u64::BITS - (index ^ (size - 1)).leading_zeros();
    (inner + index.checked_shr(inner).unwrap_or(0).count_ones()) as usize
}

/// RFC 9162 §2.1.4.2: verifies that the tree of `old` entries is a prefix of that of `new`.
pub fn verify_consistency(
    old: (u64, Hash),
    new: (u64, Hash),
    proof: &[Hash],
) -> Result<(), ProofError> {
    let ((old_size, old_root), (new_size, new_root)) = (old, new);
    if old_size > new_size {
        return Err(ProofError::Sizes { old: old_size, new: new_size });
    }
    if old_size == 0 || old_size == new_size {
        if !proof.is_empty() {
            return Err(ProofError::Length { found: proof.len(), needed: 0 });
        }
        let expected = if old_size == 0 { Hash::EMPTY_TREE } else { new_root };
        return if old_root == expected { Ok(()) } else { Err(ProofError::OldRoot) };
    }
    let needed = consistency_len(old_size, new_size);
    if proof.len() != needed {
        return Err(ProofError::Length { found: proof.len(), needed });
    }
    let mut rest = proof.iter().copied();
    let (mut node, mut last) = (old_size - 1, new_size - 1);
    while node & 1 == 1 {
        (node, last) = (node >> 1, last >> 1);
    }
    // The old tree is one complete subtree: its root is the start, and is not in the proof.
    let start = if old_size.is_power_of_two() { Some(old_root) } else { rest.next() };
    let Some(start) = start else { return Err(ProofError::OldRoot) };
    let (mut old_hash, mut new_hash) = (start, start);
    for sibling in rest {
        if node & 1 == 1 || node == last {
            old_hash = Hash::node(sibling, old_hash);
            new_hash = Hash::node(sibling, new_hash);
            while node & 1 == 0 && node != 0 {
                (node, last) = (node >> 1, last >> 1);
            }
        } else {
            new_hash = Hash::node(new_hash, sibling);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    if old_hash != old_root {
        return Err(ProofError::OldRoot);
    }
    if new_hash == new_root { Ok(()) } else { Err(ProofError::Root) }
}

/// The path of the largest complete subtree at the old tree's right edge, and its root unless
/// that is the old tree itself.
fn consistency_len(old_size: u64, new_size: u64) -> usize {
    let height = old_size.trailing_zeros();
    let path = inclusion_len((old_size - 1) >> height, ((new_size - 1) >> height) + 1);
    path + usize::from(!old_size.is_power_of_two())
}

/// The largest power of two below `count`, which is 2 at least: where RFC 6962 splits a tree.
pub(crate) fn split(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

/// Root of complete subtrees from left to right, the largest first: the right edge of a tree.
pub(crate) fn fold_edge(edge: &[Hash]) -> Hash {
    let mut hashes = edge.iter().rev().copied();
    let Some(last) = hashes.next() else { return Hash::EMPTY_TREE };
    hashes.fold(last, |right, left| Hash::node(left, right))
}

/// Root of a complete subtree over a power of two of hashes.
pub(crate) fn fold_complete(hashes: &[Hash]) -> Hash {
    match hashes {
        [] => Hash::EMPTY_TREE,
        [hash] => *hash,
        _ => {
            let (left, right) = hashes.split_at(hashes.len() / 2);
            Hash::node(fold_complete(left), fold_complete(right))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// script/prove raises the bounds.
    fn bound(small: u64, large: u64) -> u64 {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    /// RFC 6962 §2.1, literally.
    fn root(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash::EMPTY_TREE,
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(split(leaves.len() as u64) as usize);
                Hash::node(root(left), root(right))
            }
        }
    }

    /// RFC 6962 §2.1.1, literally.
    fn path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
        if leaves.len() < 2 {
            return Vec::new();
        }
        let half = split(leaves.len() as u64) as usize;
        let (left, right) = leaves.split_at(half);
        let (mut inner, sibling) = match index < half {
            true => (path(index, left), root(right)),
            false => (path(index - half, right), root(left)),
        };
        inner.push(sibling);
        inner
    }

    /// All trees up to a size: the proof of an entry holds for it alone, at its place, with exactly
    /// its hashes.
    #[test]
    fn exhaustive_inclusion_proofs_hold_for_their_entry_alone() {
        let leaves: Vec<Hash> =
            (0..bound(17, 70)).map(|at| Hash::leaf(&at.to_be_bytes())).collect();
        for size in 1..=leaves.len() {
            let (all, of_tree) = (&leaves[..size], root(&leaves[..size]));
            for index in 0..size {
                let proof = path(index, all);
                let holds = |leaf: usize, index: usize, proof: &[Hash]| {
                    verify_inclusion(leaves[leaf], index as u64, size as u64, proof, of_tree)
                        .is_ok()
                };
                assert!(holds(index, index, &proof), "{index} of {size}");
                for other in (0..size).filter(|other| *other != index) {
                    assert!(!holds(other, index, &proof) && !holds(index, other, &proof));
                }
                for at in 0..proof.len() {
                    let mut forged = proof.clone();
                    forged[at].0[at] ^= 1;
                    assert!(!holds(index, index, &forged));
                    forged.remove(at);
                    assert!(!holds(index, index, &forged));
                    forged = proof.clone();
                    forged.insert(at, proof[at]);
                    assert!(!holds(index, index, &forged));
                    forged = proof.clone();
                    forged.swap(at, 0);
                    assert!(at == 0 || !holds(index, index, &forged));
                }
            }
        }
    }
}
