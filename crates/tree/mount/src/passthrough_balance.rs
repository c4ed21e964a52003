//! Gain of passthrough for large files, less the cost of open requests.

use std::sync::atomic::{AtomicI64, Ordering};

/// Unit: bytes read.
pub(crate) struct Balance(AtomicI64);

impl Default for Balance {
    fn default() -> Self {
        Self(AtomicI64::new(OPEN_COST_BYTES * OPENS_FREE))
    }
}

impl Balance {
    /// False when the cost exceeds the gain.
    pub(crate) fn count_open(&self, len: u64) -> bool {
        let gain = i64::try_from(len.min(GAIN_BYTES_MAX)).unwrap_or(i64::MAX);
        let change = |balance: i64| Some((balance + gain - OPEN_COST_BYTES).min(BALANCE_MAX));
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
            .unwrap_or_else(|balance| balance);
        before + gain >= OPEN_COST_BYTES
    }
}

/// A request takes 25 to 30 µs with its close; passthrough saves 130 µs per MiB (docs/results-trees.md).
const OPEN_COST_BYTES: i64 = 256 << 10;

/// Before the first decision: 30 ms.
const OPENS_FREE: i64 = 1024;

/// Limit for one file: the rest may not be read.
const GAIN_BYTES_MAX: u64 = 64 << 20;

/// 16 Ki opens: old gains must not hide new costs.
const BALANCE_MAX: i64 = 16 * OPEN_COST_BYTES * OPENS_FREE;

#[cfg(test)]
mod tests {
    use super::*;

    fn opens_until_it_costs(lens: impl Iterator<Item = u64>) -> usize {
        let balance = Balance::default();
        lens.take_while(|len| balance.count_open(*len)).count()
    }

    #[test]
    fn small_files_turn_passthrough_off() {
        assert_eq!(opens_until_it_costs(std::iter::repeat_n(0, 5000)), OPENS_FREE as usize);
        assert_eq!(opens_until_it_costs(std::iter::repeat_n(1 << 30, 50_000)), 50_000);
        assert_eq!(
            opens_until_it_costs([1 << 20, 0, 0, 0].into_iter().cycle().take(50_000)),
            50_000
        );
        assert!(
            opens_until_it_costs([1 << 20, 0, 0, 0, 0, 0].into_iter().cycle().take(50_000)) < 5000
        );
    }

    #[test]
    fn old_gains_are_limited() {
        let lens = std::iter::repeat_n(1 << 40, 100_000).chain(std::iter::repeat_n(0, 100_000));
        assert_eq!(opens_until_it_costs(lens), 100_000 + 16 * OPENS_FREE as usize);
    }
}
