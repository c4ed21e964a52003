//! What the driver counts about its own work: connections, bytes, what waited. Operations are
//! counted in `metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::accept::Addresses;

/// A count that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts.
#[derive(Default)]
pub(super) struct Traffic {
    /// Connections of each address now.
    pub(super) addresses: Addresses,
    pub(super) accepted: Count,
    pub(super) refused: Count,
    /// Closed because their host's name was not found in time, or too many waited for theirs.
    pub(super) unnamed: Count,
    pub(super) closed: Count,
    /// Closed because the peer broke RPC, or was too slow to send or to take.
    pub(super) closed_broken: Count,
    pub(super) closed_slow: Count,
    pub(super) calls: Count,
    pub(super) received_len: Count,
    pub(super) sent_len: Count,
    /// Calls that had to wait for a disk or a network.
    pub(super) blocked: Count,
    pub(super) callbacks: Count,
    pub(super) callbacks_failed: Count,
    pub(super) reloads: Count,
    pub(super) reloads_failed: Count,
}
