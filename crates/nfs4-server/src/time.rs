//! Time, as the driver tells it. Nothing in this crate reads a clock.

use vouch_vfs::Time;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never goes back; leases and time-outs are counted by it.
    pub mono_ms: u64,
    /// Time of day, where the protocol or a record needs it.
    pub wall: Time,
}
