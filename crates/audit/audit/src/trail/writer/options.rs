//! Policy on failure, and durability of records.

use std::time::Duration;

use super::super::prune::Retention;

/// What happens when records cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Calls wait until the disk takes their records. Nothing is acknowledged without its record.
    Block,
    /// The service continues. A gap record counts lost records.
    Count,
    /// The service stops.
    Halt,
}

/// Written records survive a crash of the process, but not a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After each group of records. At low load, a group is one record.
    Each,
    /// When this many records are not durable.
    Records(u64),
    /// When a record has not been durable for this time.
    Every(Duration),
    /// When the system writes records back. Seals still make all they cover durable, and unsynced
    /// bytes are bounded.
    System,
}

/// Options of a [`Trail`](super::Trail).
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// On failure.
    pub policy: Policy,
    /// When written records are synced.
    pub durability: Durability,
    /// Ring of each thread, in bytes.
    pub ring_len: usize,
    /// Compresses closed segments in the background.
    pub compress: bool,
    /// When old segments are removed.
    pub retention: Retention,
    /// Some calls wait for their records whatever the policy, by [`super::Trail::record_and_wait`].
    pub some_replies_wait: bool,
}

impl WriterOptions {
    pub(super) fn delays_replies(&self) -> bool {
        self.policy == Policy::Block || self.some_replies_wait
    }
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            policy: Policy::Count,
            durability: Durability::Every(Duration::from_secs(1)),
            ring_len: 4 << 20,
            compress: true,
            retention: Retention::default(),
            some_replies_wait: false,
        }
    }
}
