//! The Merkle tree of RFC 6962 §2.1, over the leaves of one segment.

use sha2::{Digest as _, Sha256};

use crate::chain::{BlockHasher, Hash};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontier {
    count: u64,
    roots: Vec<Hash>,
}

impl Frontier {
    pub(crate) fn push(&mut self, leaf: Hash) {
        let mut insertion = self.insertion(leaf);
        while insertion.step() {}
    }

    /// The tree is invalid until the last step.
    #[inline]
    pub(crate) fn insertion(&mut self, leaf: Hash) -> LeafInsertion<'_> {
        let joins_left = self.count.trailing_ones();
        let mut insertion = LeafInsertion { tree: self, node: leaf, joins_left, join: None };
        insertion.start_join();
        insertion
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev();
        match roots.next() {
            None => Sha256::digest([]).into(),
            Some(last) => roots.fold(*last, |right, left| join(left, &right)),
        }
    }
}

pub(crate) struct LeafInsertion<'t> {
    tree: &'t mut Frontier,
    node: Hash,
    joins_left: u32,
    join: Option<BlockHasher<2>>,
}

impl LeafInsertion<'_> {
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let Some(join) = &mut self.join else { return false };
        if join.step() {
            return true;
        }
        if let Some(join) = self.join.take() {
            self.node = join.hash();
        }
        self.joins_left -= 1;
        self.start_join();
        self.step()
    }

    #[inline]
    fn start_join(&mut self) {
        if self.joins_left == 0 {
            self.tree.roots.push(self.node);
            self.tree.count += 1;
            return;
        }
        let left = self.tree.roots.pop().expect("each set bit of the count is a complete subtree");
        self.join = Some(join_hasher(&left, &self.node));
    }
}

pub(crate) fn inclusion_path(leaves: &[Hash], index: u64) -> Option<Vec<Hash>> {
    let index = usize::try_from(index).ok().filter(|index| *index < leaves.len())?;
    let mut path = Vec::new();
    collect_path(leaves, index, &mut path);
    Some(path)
}

fn collect_path(leaves: &[Hash], index: usize, path: &mut Vec<Hash>) {
    if leaves.len() <= 1 {
        return;
    }
    let split = leaves.len().next_power_of_two() / 2;
    if index < split {
        collect_path(&leaves[..split], index, path);
        path.push(root_of(&leaves[split..]));
    } else {
        collect_path(&leaves[split..], index - split, path);
        path.push(root_of(&leaves[..split]));
    }
}

fn root_of(leaves: &[Hash]) -> Hash {
    let mut tree = Frontier::default();
    leaves.iter().for_each(|leaf| tree.push(*leaf));
    tree.root()
}

/// RFC 9162 §2.1.3.2. `None` if the path does not fit the leaf's position.
pub(crate) fn root_from_path(leaf: Hash, index: u64, count: u64, path: &[Hash]) -> Option<Hash> {
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
    join_hasher(left, right).hash()
}

#[inline]
fn join_hasher(left: &Hash, right: &Hash) -> BlockHasher<2> {
    BlockHasher::of([&[1], left, right])
        .expect("a byte, two hashes and their padding fit in two blocks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::leaf_hash;

    #[test]
    fn path_proves_only_its_own_leaf() {
        for count in 0..70u64 {
            let leaves: Vec<Hash> = (0..count).map(|n| leaf_hash(&n.to_le_bytes())).collect();
            let mut tree = Frontier::default();
            leaves.iter().for_each(|leaf| tree.push(*leaf));
            assert_eq!(tree.root(), root_of(&leaves));
            for index in 0..count {
                let path = inclusion_path(&leaves, index).unwrap();
                assert_eq!(
                    root_from_path(leaves[index as usize], index, count, &path),
                    Some(tree.root())
                );
                for other in (0..count).filter(|other| *other != index) {
                    assert_ne!(
                        root_from_path(leaves[index as usize], other, count, &path),
                        Some(tree.root()),
                        "{index} as {other} of {count}"
                    );
                }
                if let Some(short) = path.len().checked_sub(1) {
                    assert_ne!(
                        root_from_path(leaves[index as usize], index, count, &path[..short]),
                        Some(tree.root())
                    );
                }
            }
            assert!(inclusion_path(&leaves, count).is_none());
        }
    }

    #[test]
    fn roots_match_rfc_6962() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect()
        };
        let inputs = [
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        ];
        let mut tree = Frontier::default();
        assert_eq!(
            tree.root().to_vec(),
            hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        );
        inputs.iter().for_each(|input| tree.push(leaf_hash(&hex(input))));
        assert_eq!(
            tree.root().to_vec(),
            hex("5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328")
        );
    }
}
