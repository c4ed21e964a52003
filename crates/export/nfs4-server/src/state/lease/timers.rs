//! One heap entry for each timer. Renewing a lease touches none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::state::id::{CallbackKey, ClientKey, FileRef, StateKey};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::state) enum Timer {
    Lease(ClientKey),
    Recall(StateKey),
    Retry(CallbackKey),
    Waiter(FileRef),
    Copy(StateKey),
    Grace,
}

#[derive(Default)]
pub(in crate::state) struct Timers(BinaryHeap<Reverse<(u64, Timer)>>);

impl Timers {
    pub(in crate::state) fn set(&mut self, due_ms: u64, timer: Timer) {
        self.0.push(Reverse((due_ms, timer)));
    }

    pub(in crate::state) fn pop(&mut self, now: u64) -> Option<Timer> {
        if self.0.peek()?.0.0 > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, timer))| timer)
    }

    pub(in crate::state) fn next_due(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((due, _))| *due)
    }
}
