//! The paths that a thread asked for last, each in the one place that its file has. Calls are often about a few files again and again, and what all threads share is not
//! asked for these.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Node;

/// Which names these are of: a thread's paths may be of others.
pub(super) struct AtHand {
    number: u64,
}

struct Known {
    number: u64,
    node: Node,
    /// How often anything had been moved: a path is good for as long as nothing is.
    moves: u64,
    path: Arc<[u8]>,
}

thread_local! {
    static LAST: RefCell<[Option<Known>; COUNT]> = const { RefCell::new([const { None }; COUNT]) };
}

impl AtHand {
    pub(super) fn new() -> Self {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        AtHand { number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    pub(super) fn get(&self, node: &Node, moves: u64) -> Option<Arc<[u8]>> {
        let is_it = |known: &&Known| known.moves == moves && known.number == self.number && known.node == *node;
        LAST.with_borrow(|last| last[place(node)].as_ref().filter(is_it).map(|known| known.path.clone()))
    }

    /// A path that was good after so many moves.
    pub(super) fn put(&self, node: Node, moves: u64, path: Arc<[u8]>) {
        LAST.with_borrow_mut(|last| last[place(&node)] = Some(Known { number: self.number, node, moves, path }));
    }
}

/// Files that are made one after the other have ids that differ little.
fn place(node: &Node) -> usize {
    let (words, rest) = node.1.as_bytes().as_chunks::<8>();
    let rest = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let words = words.iter().map(|word| u64::from_le_bytes(*word)).chain([rest]);
    // Fibonacci hashing: the product's upper bits depend on all of the lower ones.
    (words.fold(0, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> (64 - COUNT_LOG2)) as usize
}

/// Paths that a thread has at hand.
const COUNT: usize = 1 << COUNT_LOG2;
const COUNT_LOG2: u32 = 6;
