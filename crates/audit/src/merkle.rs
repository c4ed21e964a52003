//! The Merkle tree of RFC 6962, section 2.1, over the leaves of one segment: its root while it grows, and the path that proves one leaf.

use sha2::{Digest as _, Sha256};

use crate::chain::{Hash, of_parts};

/// A tree that grows: O(log n) memory, the roots of the complete subtrees from left to right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    count: u64,
    roots: Vec<Hash>,
}

impl Frontier {
    /// Appends a leaf.
    pub fn push(&mut self, leaf: Hash) {
        let mut node = leaf;
        let mut bit = self.count;
        while bit & 1 == 1 {
            let left = self.roots.pop().expect("each set bit of the count is a complete subtree");
            node = join(&left, &node);
            bit >>= 1;
        }
        self.roots.push(node);
        self.count += 1;
    }

    /// How many leaves there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The root over all leaves; of none, the hash of nothing. O(log n).
    pub fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev();
        match roots.next() {
            None => Sha256::digest([]).into(),
            Some(last) => roots.fold(*last, |right, left| join(left, &right)),
        }
    }
}

/// The hashes that lead from a leaf to the root, lowest first. O(n). None if there is no such leaf.
pub fn path(leaves: &[Hash], index: u64) -> Option<Vec<Hash>> {
    let index = usize::try_from(index).ok().filter(|index| *index < leaves.len())?;
    let mut path = Vec::new();
    walk(leaves, index, &mut path);
    Some(path)
}

fn walk(leaves: &[Hash], index: usize, path: &mut Vec<Hash>) {
    if leaves.len() <= 1 {
        return;
    }
    let split = leaves.len().next_power_of_two() / 2;
    if index < split {
        walk(&leaves[..split], index, path);
        path.push(root_of(&leaves[split..]));
    } else {
        walk(&leaves[split..], index - split, path);
        path.push(root_of(&leaves[..split]));
    }
}

fn root_of(leaves: &[Hash]) -> Hash {
    let mut tree = Frontier::default();
    leaves.iter().for_each(|leaf| tree.push(*leaf));
    tree.root()
}

/// The root that a leaf and its path lead to, in a tree of `count` leaves (RFC 9162, section 2.1.3.2). None if the path can't be of that leaf.
pub fn climb(leaf: Hash, index: u64, count: u64, path: &[Hash]) -> Option<Hash> {
    if index >= count {
        return None;
    }
    let (mut at, mut last, mut node) = (index, count - 1, leaf);
    for sibling in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            node = join(sibling, &node);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            node = join(&node, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(node)
}

fn join(left: &Hash, right: &Hash) -> Hash {
    of_parts::<2, 3>([&[1], left, right])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::leaf;

    #[test]
    fn each_leaf_of_each_size_is_proven_by_its_path_and_no_other() {
        for count in 0..70u64 {
            let leaves: Vec<Hash> = (0..count).map(|n| leaf(&n.to_le_bytes())).collect();
            let mut tree = Frontier::default();
            leaves.iter().for_each(|leaf| tree.push(*leaf));
            assert_eq!(tree.root(), root_of(&leaves));
            for index in 0..count {
                let path = path(&leaves, index).unwrap();
                assert_eq!(climb(leaves[index as usize], index, count, &path), Some(tree.root()));
                for other in (0..count).filter(|other| *other != index) {
                    assert_ne!(climb(leaves[index as usize], other, count, &path), Some(tree.root()), "{index} as {other} of {count}");
                }
                if let Some(short) = path.len().checked_sub(1) {
                    assert_ne!(climb(leaves[index as usize], index, count, &path[..short]), Some(tree.root()));
                }
            }
            assert!(path(&leaves, count).is_none());
        }
    }

    /// The roots of certificate transparency's reference test (RFC 6962's tree over these eight inputs).
    #[test]
    fn roots_are_those_of_rfc_6962() {
        let hex =
            |text: &str| -> Vec<u8> { (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect() };
        let inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
        let mut tree = Frontier::default();
        assert_eq!(tree.root().to_vec(), hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
        inputs.iter().for_each(|input| tree.push(leaf(&hex(input))));
        assert_eq!(tree.root().to_vec(), hex("5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"));
    }
}
