//! Whether passthrough pays: estimated gain of large files, less the cost of all opens.

use std::sync::atomic::{AtomicI64, Ordering};

/// What passthrough may have gained, less what opens have cost, in bytes read.
pub(crate) struct Balance(AtomicI64);

impl Default for Balance {
    fn default() -> Self {
        Self(AtomicI64::new(OPEN_COST_BYTES * OPENS_FREE))
    }
}

impl Balance {
    /// Books an open of a file, of `len` bytes that could pass through; false once the opens have
    /// cost more than they gain.
    pub(crate) fn book(&self, len: u64) -> bool {
        let gain = i64::try_from(len.min(GAIN_BYTES_MAX)).unwrap_or(i64::MAX);
        let change = |balance: i64| Some((balance + gain - OPEN_COST_BYTES).min(BALANCE_MAX));
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).unwrap_or_else(|balance| balance);
        before + gain >= OPEN_COST_BYTES
    }
}

/// What one open costs, in bytes: as many as passthrough must read to gain the time. An open of a
/// file takes 25 to 30 µs more when it is heard of, with its close; a MiB from the page cache takes
/// 130 µs less when it is passed through (benches/runs).
const OPEN_COST_BYTES: i64 = 256 << 10;

/// Opens before anything is judged: 30 ms.
const OPENS_FREE: i64 = 1024;

/// More of a file than this may not be read at all.
const GAIN_BYTES_MAX: u64 = 64 << 20;

/// So that what was gained long ago does not outweigh what is lost now: 16 Ki opens.
const BALANCE_MAX: i64 = 16 * OPEN_COST_BYTES * OPENS_FREE;

#[cfg(test)]
mod tests {
    use super::*;

    fn opens_until_it_costs(lens: impl Iterator<Item = u64>) -> usize {
        let balance = Balance::default();
        lens.take_while(|len| balance.book(*len)).count()
    }

    #[test]
    fn opens_of_small_files_end_it_and_those_of_large_ones_do_not() {
        assert_eq!(opens_until_it_costs(std::iter::repeat_n(0, 5000)), OPENS_FREE as usize);
        assert_eq!(opens_until_it_costs(std::iter::repeat_n(1 << 30, 50_000)), 50_000);
        // One of 1 MiB to three small ones is even.
        assert_eq!(opens_until_it_costs([1 << 20, 0, 0, 0].into_iter().cycle().take(50_000)), 50_000);
        assert!(opens_until_it_costs([1 << 20, 0, 0, 0, 0, 0].into_iter().cycle().take(50_000)) < 5000);
    }

    #[test]
    fn what_was_gained_long_ago_is_used_up_in_time() {
        let lens = std::iter::repeat_n(1 << 40, 100_000).chain(std::iter::repeat_n(0, 100_000));
        assert_eq!(opens_until_it_costs(lens), 100_000 + 16 * OPENS_FREE as usize);
    }
}
