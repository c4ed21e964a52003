use std::collections::{HashMap, HashSet, VecDeque};

use vouch_tree::inode_number::InodeNumber as NodeId;

type NameIn = (NodeId, Box<[u8]>);

#[derive(Default)]
pub(crate) struct NegativeNames {
    by_directory: HashMap<NodeId, HashSet<Box<[u8]>>>,
    order: VecDeque<(NodeId, Box<[u8]>)>,
}

impl NegativeNames {
    pub(crate) fn insert(&mut self, directory: NodeId, name: &[u8]) -> (bool, Option<NameIn>) {
        if !self.by_directory.entry(directory).or_default().insert(name.into()) {
            return (false, None);
        }
        self.order.push_back((directory, name.into()));
        (true, if self.order.len() > NAMES_MAX { self.evict() } else { None })
    }

    fn evict(&mut self) -> Option<NameIn> {
        let (directory, name) = self.order.pop_front()?;
        let names = self.by_directory.get_mut(&directory)?;
        let held = names.remove(&name);
        if names.is_empty() {
            self.by_directory.remove(&directory);
        }
        held.then_some((directory, name))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &[u8])> {
        self.by_directory
            .iter()
            .flat_map(|(directory, names)| names.iter().map(|name| (*directory, &**name)))
    }

    pub(crate) fn drain(&mut self, directory: NodeId) -> Vec<Box<[u8]>> {
        self.by_directory.remove(&directory).into_iter().flatten().collect()
    }
}

/// A compiler that searches include directories makes some thousands.
const NAMES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drains_names_of_one_directory() {
        let mut set = NegativeNames::default();
        assert_eq!(set.insert(NodeId(5), b"a"), (true, None));
        assert_eq!(set.insert(NodeId(6), b"b"), (true, None));
        assert_eq!(set.insert(NodeId(5), b"a"), (false, None));
        assert_eq!(set.drain(NodeId(5)), vec![Box::from(&b"a"[..])]);
        assert_eq!(set.drain(NodeId(5)), Vec::<Box<[u8]>>::new());
    }

    #[test]
    fn evicts_oldest_name_when_full() {
        let mut set = NegativeNames::default();
        for n in 0..NAMES_MAX as u32 {
            assert_eq!(set.insert(NodeId(5), &n.to_le_bytes()), (true, None));
        }
        assert_eq!(
            set.insert(NodeId(5), b"one more"),
            (true, Some((NodeId(5), Box::from(&0u32.to_le_bytes()[..]))))
        );
    }
}
