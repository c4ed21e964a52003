//! Time, passed in by the driver: this crate reads no clock.

use vouch_vfs::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Of a monotonic clock, for leases and time-outs.
    pub mono_ms: u64,
    pub wall: Time,
}
