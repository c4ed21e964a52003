//! Lease, renewal and waits, in nanoseconds of the head's own clock.

use std::time::Duration;

use super::record::LeaseRecord;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTimes {
    /// A head serves at most so long after it began to write its last renewal.
    pub(crate) lease_ns: u64,
    pub(crate) renew_every_ns: u64,
    pub(crate) poll_every_ns: u64,
    /// A standby that sees no renewal for this time knows that the lease has run out. Clocks of two
    /// heads may differ in rate by [`CLOCK_RATE_PERCENT`].
    wait_ns: u64,
    /// Silence after which the fencing program runs.
    suspect_ns: u64,
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

    /// As in a record, rounded up.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease_ns.div_ceil(NS_PER_MS)
    }

    /// The waits count from the longer lease: the heads before may have another `--state-lease`.
    pub(crate) fn wait_ns(&self, before: &LeaseRecord) -> u64 {
        self.wait_ns.max(Self::of_record(before).map_or(0, |before| before.wait_ns))
    }

    pub(crate) fn suspect_ns(&self, before: &LeaseRecord) -> u64 {
        self.suspect_ns.max(Self::of_record(before).map_or(0, |before| before.suspect_ns))
    }

    fn of_record(record: &LeaseRecord) -> Option<Self> {
        record.lease_ms.map(|lease_ms| LeaseTimes::of(Duration::from_millis(lease_ms)))
    }
}

const NS_PER_MS: u64 = 1_000_000;

/// A quartz clock is off by 0.01 %; the clock of a virtual machine under NTP by 0.1 %.
const CLOCK_RATE_PERCENT: u64 = 10;
