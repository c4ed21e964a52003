//! Time, passed in by the driver. This crate reads no clock.

use vouch_vfs::Time;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock, for leases and time-outs.
    pub mono_ms: u64,
    pub wall: Time,
}
