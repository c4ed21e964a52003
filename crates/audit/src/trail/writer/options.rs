//! Options of the writer: the policy on failure, and when records are made durable.

use std::time::Duration;

use super::super::prune::Retention;

/// What to do when a record cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Calls wait until the disk takes their records. Nothing is acknowledged without its record.
    Block,
    /// The service continues. Lost records are counted in a gap record.
    Count,
    /// The service stops.
    Halt,
}

/// When records become durable. Written records survive a crash of the process, but not a power
/// cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After each group of records. At low load, a group is one record.
    Each,
    /// When this many records are not durable.
    Records(u64),
    /// When a record has not been durable for this time.
    Every(Duration),
    /// Whenever the system writes them back. Seals still make all they cover durable, and unsynced
    /// bytes are bounded.
    System,
}

#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// What to do when a record cannot be stored.
    pub policy: Policy,
    /// When records are made durable.
    pub durability: Durability,
    /// Length of each thread's ring, in bytes.
    pub ring_len: usize,
    /// Whether to compress closed segments.
    pub compress: bool,
    /// Which old segments to remove.
    pub retention: Retention,
    /// Whether some calls wait for their records whatever the policy, through
    /// [`super::Trail::record_and_wait`].
    pub some_replies_wait: bool,
}

impl WriterOptions {
    /// Accepted records are then never dropped.
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
