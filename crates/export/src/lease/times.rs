//! Lease, renewal and waits, in nanoseconds of the head's own clock.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTimes {
    /// A head serves at most so long after it began to write its last renewal.
    pub(crate) lease_ns: u64,
    pub(crate) renew_every_ns: u64,
    pub(crate) poll_every_ns: u64,
    /// A standby that sees no renewal for this time knows that the lease has run out. Clocks of two
    /// heads may differ in rate by [`CLOCK_RATE_PERCENT`].
    pub(crate) wait_ns: u64,
    /// Silence after which the fencing program runs.
    pub(crate) suspect_ns: u64,
    /// A head that could not renew ends so long before the end of its lease.
    pub(crate) stop_before_ns: u64,
}

impl LeaseTimes {
    pub(crate) fn of(lease: Duration) -> Self {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        LeaseTimes {
            lease_ns,
            renew_every_ns: lease_ns / 5,
            poll_every_ns: lease_ns / 20,
            wait_ns: lease_ns + lease_ns / 100 * CLOCK_RATE_PERCENT,
            suspect_ns: lease_ns / 2,
            stop_before_ns: lease_ns / 20,
        }
    }
}

/// A quartz clock is off by 0.01 %; the clock of a virtual machine under NTP by 0.1 %.
const CLOCK_RATE_PERCENT: u64 = 10;
