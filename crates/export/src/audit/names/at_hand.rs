//! The paths that a thread asked for last, each in one of the two places that its file has. Calls
//! are often about a few files again and again, and what all threads share is not asked for these.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::node::Node;
use super::stamps::{Stamped, Stamps};

/// Which names these are of: a thread's paths may be of others.
pub(super) struct AtHand {
    number: u64,
}

struct Known {
    number: u64,
    node: Node,
    /// How often anything had been moved when the path was good.
    moves: u64,
    path: Arc<[u8]>,
    /// By which it is seen that it is good although something was moved. None: it isn't.
    stamped: Option<Arc<Stamped>>,
}

thread_local! {
    /// Of each pair, the one that was put there last is the first.
    static LAST: RefCell<[[Option<Known>; 2]; COUNT]> = const { RefCell::new([const { [const { None }; 2] }; COUNT]) };
}

impl AtHand {
    pub(super) fn new() -> Self {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        AtHand { number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    /// `moves`: how often anything was moved, asked before.
    pub(super) fn get(&self, node: &Node, moves: u64, stamps: &Stamps) -> Option<Arc<[u8]>> {
        LAST.with_borrow_mut(|last| {
            let known = last[place(node)].iter_mut().flatten().find(|known| known.number == self.number && known.node == *node)?;
            if known.moves != moves {
                known.stamped.as_ref().filter(|stamped| stamps.is_good(stamped))?;
                known.moves = moves;
            }
            Some(known.path.clone())
        })
    }

    /// A path that was good after so many moves.
    pub(super) fn put(&self, node: Node, moves: u64, path: Arc<[u8]>, stamped: Option<Arc<Stamped>>) {
        LAST.with_borrow_mut(|last| {
            let [first, second] = &mut last[place(&node)];
            if first.as_ref().is_some_and(|first| first.number != self.number || first.node != node) {
                std::mem::swap(first, second);
            }
            *first = Some(Known { number: self.number, node, moves, path, stamped });
        });
    }
}

/// Files that are made one after the other have ids that differ little.
fn place(node: &Node) -> usize {
    // Fibonacci hashing: the product's upper bits depend on all of the lower ones.
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (node.words().fold(0, mix) >> (64 - COUNT_LOG2)) as usize
}

/// Half as many paths as a thread has at hand.
const COUNT: usize = 1 << COUNT_LOG2;
const COUNT_LOG2: u32 = 6;
