//! The missing names that the kernel was told of, to be taken back when a revision brings them.

use std::collections::{HashMap, HashSet, VecDeque};

use vouch_tree::inode_number::InodeNumber as NodeId;

/// A bounded set of (directory, name).
#[derive(Default)]
pub(crate) struct NegativeNames {
    by_directory: HashMap<NodeId, HashSet<Box<[u8]>>>,
    /// Oldest first; may hold pairs that were drained since.
    order: VecDeque<(NodeId, Box<[u8]>)>,
}

impl NegativeNames {
    /// Remembers a missing name. Returns one that had to be let go: the kernel must forget it
    /// first.
    pub(crate) fn insert(&mut self, directory: NodeId, name: &[u8]) -> Option<(NodeId, Box<[u8]>)> {
        if !self.by_directory.entry(directory).or_default().insert(name.into()) {
            return None;
        }
        self.order.push_back((directory, name.into()));
        if self.order.len() <= NAMES_MAX {
            return None;
        }
        let (directory, name) = self.order.pop_front()?;
        let names = self.by_directory.get_mut(&directory)?;
        let held = names.remove(&name);
        if names.is_empty() {
            self.by_directory.remove(&directory);
        }
        held.then_some((directory, name))
    }

    /// Takes all missing names of a directory.
    pub(crate) fn drain(&mut self, directory: NodeId) -> Vec<Box<[u8]>> {
        self.by_directory.remove(&directory).into_iter().flatten().collect()
    }
}

/// Missing names remembered for a tree; a compiler's search through its include directories makes
/// some thousands.
const NAMES_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drained_names_are_those_of_the_directory() {
        let mut set = NegativeNames::default();
        assert_eq!(set.insert(NodeId(5), b"a"), None);
        assert_eq!(set.insert(NodeId(6), b"b"), None);
        assert_eq!(set.insert(NodeId(5), b"a"), None);
        assert_eq!(set.drain(NodeId(5)), vec![Box::from(&b"a"[..])]);
        assert_eq!(set.drain(NodeId(5)), Vec::<Box<[u8]>>::new());
    }

    #[test]
    fn the_set_is_bounded_and_names_what_it_lets_go() {
        let mut set = NegativeNames::default();
        for n in 0..NAMES_MAX as u32 {
            assert_eq!(set.insert(NodeId(5), &n.to_le_bytes()), None);
        }
        assert_eq!(set.insert(NodeId(5), b"one more"), Some((NodeId(5), Box::from(&0u32.to_le_bytes()[..]))));
    }
}
