//! Thread-local, two-way set-associative: calls often repeat a few files, and the shared tables are
//! slower.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::node::Node;
use super::stamps::{Stamped, Stamps};

pub(super) struct ThreadPathCache {
    number: u64,
}

struct Known {
    number: u64,
    node: Node,
    moves: u64,
    path: Arc<[u8]>,
    stamped: Option<Arc<Stamped>>,
}

thread_local! {
    static LAST: RefCell<[[Option<Known>; 2]; COUNT]> = const { RefCell::new([const { [const { None }; 2] }; COUNT]) };
}

impl ThreadPathCache {
    pub(super) fn new() -> Self {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        ThreadPathCache { number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    pub(super) fn get(&self, node: &Node, moves: u64, stamps: &Stamps) -> Option<Arc<[u8]>> {
        LAST.with_borrow_mut(|last| {
            let known = last[place(node)]
                .iter_mut()
                .flatten()
                .find(|known| known.number == self.number && known.node == *node)?;
            if known.moves != moves {
                known.stamped.as_ref().filter(|stamped| stamps.is_good(stamped))?;
                known.moves = moves;
            }
            Some(known.path.clone())
        })
    }

    pub(super) fn put(
        &self,
        node: Node,
        moves: u64,
        path: Arc<[u8]>,
        stamped: Option<Arc<Stamped>>,
    ) {
        LAST.with_borrow_mut(|last| {
            let [first, second] = &mut last[place(&node)];
            if first.as_ref().is_some_and(|first| first.number != self.number || first.node != node)
            {
                std::mem::swap(first, second);
            }
            *first = Some(Known { number: self.number, node, moves, path, stamped });
        });
    }
}

fn place(node: &Node) -> usize {
    // Fibonacci hashing: the upper bits depend on all lower bits.
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (node.words().fold(0, mix) >> (64 - COUNT_LOG2)) as usize
}

const COUNT: usize = 1 << COUNT_LOG2;
const COUNT_LOG2: u32 = 6;
