//! Clients of distributed file systems read ahead only where a descriptor is read in order, one
//! part after another.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Shorter reads do not profit.
const LEN_MIN: usize = 128 << 10;

/// Of concurrent reads, to count as reads in order.
const DISTANCE_MAX: u64 = 32 << 20;

#[derive(Default)]
pub(crate) struct ReadOrder {
    turn: Mutex<()>,
    end: AtomicU64,
}

impl ReadOrder {
    /// For a read that continues the ones before; none if other reads may run beside it.
    pub(crate) fn turn(&self, offset: u64, len: usize) -> Option<MutexGuard<'_, ()>> {
        let last = self.end.swap(offset + len as u64, Ordering::Relaxed);
        (len >= LEN_MIN && offset.abs_diff(last) <= DISTANCE_MAX).then(|| self.turn.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 1 << 20;

    #[test]
    fn only_long_reads_near_the_last_one_take_turns() {
        let order = ReadOrder::default();
        assert!(order.turn(0, LEN_MIN - 1).is_none());
        let turn = order.turn(2 * PART as u64, PART).expect("reads in flight arrive out of order");
        assert!(order.turn(1 << 40, PART).is_none(), "a distant read does not wait for the turn");
        drop(turn);
        assert!(order.turn((1 << 40) + PART as u64, PART).is_some());
    }
}
