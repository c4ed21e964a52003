//! How a trail is kept: what is done when it can't be, and when what was recorded is durable.

use std::time::Duration;

use super::super::prune::Retention;

/// What is done when a record can't be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nothing is acknowledged without its record: calls wait until the disk takes it.
    Block,
    /// The service goes on; what was lost is counted, and the count is a record.
    Count,
    /// The service stops.
    Halt,
}

/// When records are made durable. What is written and not durable outlives the process, and not a
/// power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Each group of records, which is what came while the last one was on its way: at low load
    /// each record.
    Each,
    /// When so many are not.
    Records(u64),
    /// When one has not been for so long.
    Every(Duration),
    /// When the system likes, but for seals, which make all that they cover durable, and before
    /// much of it waits for one.
    System,
}

/// How a trail is kept.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// What is done when a record can't be kept.
    pub policy: Policy,
    /// When records are made durable.
    pub durable: Durable,
    /// Bytes of each thread's ring.
    pub ring_len: usize,
    /// Whether closed segments are compressed.
    pub compress: bool,
    /// What is removed, and when.
    pub retention: Retention,
    /// Whether some records are waited for, whatever the policy: those of
    /// [`super::Trail::record_and_wait`].
    pub waits: bool,
}

impl Keeping {
    /// Whether it is counted what is not kept yet, and nothing that was taken is given up.
    pub(super) fn holds(&self) -> bool {
        self.policy == Policy::Block || self.waits
    }
}

impl Default for Keeping {
    fn default() -> Self {
        Keeping {
            policy: Policy::Count,
            durable: Durable::Every(Duration::from_secs(1)),
            ring_len: 4 << 20,
            compress: true,
            retention: Retention::default(),
            waits: false,
        }
    }
}
