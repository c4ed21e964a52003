//! What `vouch check` shows of failures: the last refusals, and an outage that lasts.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A request that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalStatus {
    /// Name of the fault in docs/troubleshooting.md.
    pub fault: String,
    pub job: String,
    /// Empty if it is not known.
    pub user: String,
    /// Empty for a refusal of the scheduler.
    pub node: String,
    pub reason: String,
    /// Seconds since 1970.
    pub at_s: u64,
}

/// A peer that does not do its part since `since_s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutageStatus {
    /// Name of the fault in docs/troubleshooting.md.
    pub fault: String,
    /// Seconds since 1970.
    pub since_s: u64,
    /// The newest reason.
    pub reason: String,
}

#[derive(Default)]
pub(crate) struct RecentRefusals(Mutex<VecDeque<RefusalStatus>>);

impl RecentRefusals {
    /// Replaces an earlier refusal of the same job on the same node.
    pub(crate) fn add(&self, refusal: RefusalStatus) {
        let mut refusals = self.0.lock();
        refusals.retain(|known| (&known.job, &known.node) != (&refusal.job, &refusal.node));
        if refusals.len() >= REFUSALS_MAX {
            refusals.pop_front();
        }
        refusals.push_back(refusal);
    }

    pub(crate) fn status(&self) -> Vec<RefusalStatus> {
        self.0.lock().iter().cloned().collect()
    }
}

/// Begins with the first failure and ends with the first success.
#[derive(Default)]
pub(crate) struct Outage(Mutex<Option<OutageStatus>>);

impl Outage {
    pub(crate) fn failed(&self, fault: &str, reason: String, now_s: u64) {
        let mut outage = self.0.lock();
        let since_s = outage.as_ref().map_or(now_s, |outage| outage.since_s);
        *outage = Some(OutageStatus { fault: fault.to_owned(), since_s, reason });
    }

    pub(crate) fn ended(&self) {
        *self.0.lock() = None;
    }

    pub(crate) fn status(&self) -> Option<OutageStatus> {
        self.0.lock().clone()
    }
}

/// A user whom the broker's host or a node does not know.
pub(crate) const NO_ACCOUNT: &str = "user-without-account";
/// A refusal by rule.
pub(crate) const TICKETS_REFUSED: &str = "tickets-refused";

const REFUSALS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_refusal_of_each_job_and_node() {
        let refusals = RecentRefusals::default();
        for number in 0..40u64 {
            let (job, node) = ((number % 20).to_string(), "n1".to_owned());
            refusals.add(RefusalStatus { job, node, at_s: number, ..RefusalStatus::default() });
        }
        let found: Vec<_> =
            refusals.status().into_iter().map(|refusal| (refusal.job, refusal.at_s)).collect();
        assert_eq!(
            found,
            (4..20).map(|number: u64| (number.to_string(), 20 + number)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn outage_lasts_from_first_failure_to_next_success() {
        let outage = Outage::default();
        outage.failed("kdc-unavailable", "first".into(), 10);
        outage.failed("clock-skew", "second".into(), 20);
        let expected =
            OutageStatus { fault: "clock-skew".into(), since_s: 10, reason: "second".into() };
        assert_eq!(outage.status(), Some(expected));
        outage.ended();
        assert_eq!(outage.status(), None);
    }
}
