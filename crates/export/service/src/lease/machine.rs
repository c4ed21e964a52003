//! The protocol of one head. It reads no clock and no storage: [`LeaseMachine::next`] says what to
//! do, and [`LeaseMachine::done`] takes the result.
//!
//! Why two heads never serve at once:
//! - Only one head creates the record of an epoch.
//! - A head extends its lease only if it sees no later epoch after it has written a renewal. The
//!   lease counts from before that write.
//! - A head that has created an epoch reads the record of the earlier head again. A renewal that the
//!   earlier head could count on is visible by then, and no later one counts.
//! - So the earlier head ends within a lease of the last renewal that the new head saw. Each record
//!   has the length of this lease, because heads may have different ones.
//! - A head writes no number of a renewal twice, also after a failure that may have been none: a
//!   standby would take the later one for the earlier one, and count the lease from that.

use super::record::{Epoch, LeaseRecord, Tenure};
use super::times::LeaseTimes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read the record of the highest epoch.
    ReadLatest,
    Read(Epoch),
    /// Create the record unless it exists.
    Claim(LeaseRecord),
    /// Replace the head's own record.
    Renew(LeaseRecord),
    /// Start the fencing program against these heads, which served up to this epoch.
    Fence(Epoch, Vec<String>),
    SleepUntil(u64),
    /// The head must not serve any more.
    End(Loss),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Expired,
    TakenOver,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    Read(Option<LeaseRecord>),
    Claimed(bool),
    Renewed,
    FenceStarted,
    Slept,
    /// The storage failed. The operation may have been carried out.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fencing {
    None,
    /// A success shortens the wait.
    Optional,
    /// The head serves only after a success.
    Required,
}

#[derive(Debug)]
pub(crate) struct LeaseMachine {
    head: String,
    process: u64,
    times: LeaseTimes,
    fencing: Fencing,
    phase: Phase,
    /// When the last step began.
    began_ns: u64,
}

#[derive(Debug)]
enum Phase {
    Watching(Watch),
    Holding(Holding),
    Ended(Loss),
}

#[derive(Debug, Default)]
struct Watch {
    seen: Option<ObservedRecord>,
    claim: Option<LeaseRecord>,
    poll_at_ns: u64,
}

#[derive(Clone, Debug)]
struct ObservedRecord {
    record: LeaseRecord,
    /// When this head first saw the record, which is not before it was written.
    since_ns: u64,
}

#[derive(Debug)]
struct Holding {
    /// As last written and checked.
    own: LeaseRecord,
    /// The last number that a renewal was written with, or a failed one.
    last_renewal: u64,
    valid_until_ns: u64,
    renew_at_ns: u64,
    renewal: Option<Renewal>,
    /// The head before, until it has surely ended.
    predecessor: Option<Predecessor>,
}

/// A renewal under way.
#[derive(Debug)]
struct Renewal {
    record: LeaseRecord,
    began_ns: u64,
    is_written: bool,
}

#[derive(Debug)]
struct Predecessor {
    last: ObservedRecord,
    poll_at_ns: u64,
    fence: FenceProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceProgress {
    DueAt(u64),
    Running,
    Done,
}

impl LeaseMachine {
    pub(crate) fn new(head: String, process: u64, times: LeaseTimes, fencing: Fencing) -> Self {
        LeaseMachine {
            head,
            process,
            times,
            fencing,
            phase: Phase::Watching(Watch::default()),
            began_ns: 0,
        }
    }

    /// The head may serve before this time.
    pub(crate) fn serves_until_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Holding(holding) if holding.is_active() => Some(holding.valid_until_ns),
            _ => None,
        }
    }

    /// This head serves next, as far as it knows. After the end of an earlier process of this head,
    /// its peer may have the lead.
    pub(crate) fn is_next(&self, now_ns: u64) -> bool {
        match &self.phase {
            Phase::Watching(Watch { seen: Some(seen), .. }) => {
                let is_silent =
                    now_ns.saturating_sub(seen.since_ns) >= self.times.suspect_ns(&seen.record);
                seen.record.head != self.head
                    && (seen.record.tenure == Tenure::Released || is_silent)
            }
            Phase::Holding(_) => true,
            Phase::Watching(_) | Phase::Ended(_) => false,
        }
    }

    /// The record of this head's epoch.
    pub(crate) fn own(&self) -> Option<&LeaseRecord> {
        match &self.phase {
            Phase::Holding(holding) => Some(&holding.own),
            _ => None,
        }
    }

    /// The head that this one watches or waits for.
    pub(crate) fn other(&self) -> Option<&LeaseRecord> {
        match &self.phase {
            Phase::Watching(watch) => watch.seen.as_ref().map(|seen| &seen.record),
            Phase::Holding(holding) => {
                holding.predecessor.as_ref().map(|before| &before.last.record)
            }
            Phase::Ended(_) => None,
        }
    }

    /// The record that ends this head's tenure in order. Only for a head that served: the head
    /// before a mere claim may still live.
    pub(crate) fn release(&self) -> Option<LeaseRecord> {
        let Phase::Holding(holding) = &self.phase else { return None };
        let renewal = holding.last_renewal + 1;
        holding.is_active().then(|| LeaseRecord {
            renewal,
            tenure: Tenure::Released,
            ..holding.own.clone()
        })
    }

    /// `now_ns` must be read before the step begins.
    pub(crate) fn next(&mut self, now_ns: u64) -> Step {
        self.began_ns = now_ns;
        match &mut self.phase {
            Phase::Watching(watch) => watch.next(now_ns),
            Phase::Holding(holding) if now_ns < holding.valid_until_ns => {
                holding.next(now_ns, &self.times)
            }
            Phase::Holding(holding) if !holding.is_active() => {
                self.phase = Phase::Watching(Watch::default());
                Step::ReadLatest
            }
            Phase::Holding(_) => {
                self.phase = Phase::Ended(Loss::Expired);
                Step::End(Loss::Expired)
            }
            Phase::Ended(loss) => Step::End(*loss),
        }
    }

    /// `now_ns` must be read after the step has ended.
    pub(crate) fn done(&mut self, result: StepResult, now_ns: u64) {
        let (began_ns, poll_at_ns) = (self.began_ns, now_ns + self.times.poll_every_ns);
        match (&mut self.phase, result) {
            (_, StepResult::Slept) | (Phase::Ended(_), _) => {}
            (
                Phase::Watching(Watch { claim: Some(claim), seen, .. }),
                StepResult::Claimed(true),
            ) => {
                let (own, before) = (claim.clone(), seen.take());
                self.phase = Phase::Holding(Holding::new(
                    own,
                    before,
                    began_ns,
                    now_ns,
                    &self.times,
                    self.fencing,
                ));
            }
            // After a failure the claim may exist. Then nobody holds it, and it runs out like any.
            (Phase::Watching(watch @ Watch { claim: Some(_), .. }), _) => {
                *watch = Watch { poll_at_ns, ..Watch::default() }
            }
            (Phase::Watching(_), StepResult::Read(latest)) => self.watch(latest, now_ns),
            (Phase::Watching(watch), _) => watch.poll_at_ns = poll_at_ns,
            (Phase::Holding(holding), result) => {
                if let Err(loss) =
                    holding.done(result, began_ns, now_ns, &self.times, (&self.head, self.fencing))
                {
                    let is_active = holding.is_active();
                    self.phase = if is_active {
                        Phase::Ended(loss)
                    } else {
                        Phase::Watching(Watch::default())
                    };
                }
            }
        }
    }

    /// The fencing program has ended. `epoch` is that of its step.
    pub(crate) fn fenced(&mut self, epoch: Epoch, is_success: bool, now_ns: u64) {
        let Phase::Holding(holding) = &mut self.phase else { return };
        let Some(before) =
            holding.predecessor.as_mut().filter(|before| before.last.record.epoch == epoch)
        else {
            return;
        };
        before.fence = if is_success {
            FenceProgress::Done
        } else {
            FenceProgress::DueAt(now_ns + self.times.lease_ns)
        };
        if is_success && !before.names(&self.head) {
            holding.predecessor_ended(now_ns);
        }
    }

    fn watch(&mut self, latest: Option<LeaseRecord>, now_ns: u64) {
        let Phase::Watching(Watch { seen, claim, poll_at_ns }) = &mut self.phase else { return };
        *poll_at_ns = now_ns + self.times.poll_every_ns;
        let claim_of = |epoch, before, lease_ms| {
            let (head, process) = (self.head.clone(), self.process);
            Some(LeaseRecord {
                epoch,
                head,
                process,
                renewal: 0,
                tenure: Tenure::Claimed,
                before,
                lease_ms: Some(lease_ms),
            })
        };
        let lease_ms = self.times.lease_ms();
        let Some(record) = latest else {
            (*seen, *claim) = (None, claim_of(Epoch(1), Vec::new(), lease_ms));
            return;
        };
        let is_same = seen.as_ref().is_some_and(|seen| seen.record == record);
        if !is_same {
            *seen = Some(ObservedRecord { record: record.clone(), since_ns: now_ns });
        }
        let silent_ns = seen.as_ref().map_or(0, |seen| self.began_ns.saturating_sub(seen.since_ns));
        let claim_after_ns = match self.fencing {
            Fencing::None => self.times.wait_ns(&record),
            Fencing::Optional | Fencing::Required => self.times.suspect_ns(&record),
        };
        if record.tenure == Tenure::Released || is_same && silent_ns >= claim_after_ns {
            let longest_ms = lease_ms.max(record.lease_ms.unwrap_or(0));
            *claim = claim_of(Epoch(record.epoch.0 + 1), heads_through(&record), longest_ms);
        }
    }
}

impl Watch {
    fn next(&self, now_ns: u64) -> Step {
        match &self.claim {
            Some(record) => Step::Claim(record.clone()),
            None if now_ns < self.poll_at_ns => Step::SleepUntil(self.poll_at_ns),
            None => Step::ReadLatest,
        }
    }
}

impl Holding {
    fn new(
        own: LeaseRecord,
        before: Option<ObservedRecord>,
        began_ns: u64,
        now_ns: u64,
        times: &LeaseTimes,
        fencing: Fencing,
    ) -> Self {
        let fence = if fencing == Fencing::None {
            FenceProgress::Done
        } else {
            FenceProgress::DueAt(now_ns)
        };
        let is_ended = |before: &ObservedRecord| before.record.tenure == Tenure::Released;
        let predecessor = before.filter(|before| !is_ended(before)).map(|last| Predecessor {
            last,
            poll_at_ns: 0,
            fence,
        });
        let renew_at_ns =
            if predecessor.is_none() { now_ns } else { began_ns + times.renew_every_ns };
        Holding {
            last_renewal: own.renewal,
            own,
            valid_until_ns: began_ns + times.lease_ns,
            renew_at_ns,
            renewal: None,
            predecessor,
        }
    }

    fn is_active(&self) -> bool {
        self.own.tenure == Tenure::Active
    }

    fn predecessor_ended(&mut self, now_ns: u64) {
        self.predecessor = None;
        self.renew_at_ns = now_ns;
    }

    fn next(&mut self, now_ns: u64, times: &LeaseTimes) -> Step {
        if self.renewal.as_ref().is_some_and(|renewal| renewal.is_written) {
            return Step::ReadLatest;
        }
        if now_ns >= self.renew_at_ns {
            self.last_renewal += 1;
            let renewal = self.last_renewal;
            let record = match &self.predecessor {
                None => {
                    let (tenure, before, lease_ms) =
                        (Tenure::Active, Vec::new(), Some(times.lease_ms()));
                    LeaseRecord { renewal, tenure, before, lease_ms, ..self.own.clone() }
                }
                Some(_) => LeaseRecord { renewal, ..self.own.clone() },
            };
            self.renewal =
                Some(Renewal { record: record.clone(), began_ns: now_ns, is_written: false });
            return Step::Renew(record);
        }
        let Some(before) = &mut self.predecessor else { return Step::SleepUntil(self.renew_at_ns) };
        match before.fence {
            FenceProgress::DueAt(due_ns) if now_ns >= due_ns => {
                let heads = self
                    .own
                    .before
                    .iter()
                    .filter(|name| **name != self.own.head)
                    .cloned()
                    .collect();
                before.fence = FenceProgress::Running;
                Step::Fence(before.last.record.epoch, heads)
            }
            _ if now_ns >= before.poll_at_ns => {
                before.poll_at_ns = now_ns + times.poll_every_ns;
                Step::Read(before.last.record.epoch)
            }
            _ => Step::SleepUntil(self.renew_at_ns.min(before.poll_at_ns)),
        }
    }

    fn done(
        &mut self,
        result: StepResult,
        began_ns: u64,
        now_ns: u64,
        times: &LeaseTimes,
        (head, fencing): (&str, Fencing),
    ) -> Result<(), Loss> {
        match (result, self.renewal.take()) {
            (StepResult::Renewed, Some(renewal)) => {
                self.renewal = Some(Renewal { is_written: true, ..renewal })
            }
            (StepResult::Read(latest), Some(renewal)) => {
                let is_own = |latest: &LeaseRecord| {
                    latest.epoch == self.own.epoch && latest.process == self.own.process
                };
                if !latest.as_ref().is_some_and(is_own) {
                    return Err(Loss::TakenOver);
                }
                self.valid_until_ns = renewal.began_ns + times.lease_ns;
                self.renew_at_ns = renewal.began_ns + times.renew_every_ns;
                self.own = renewal.record;
            }
            (StepResult::Read(Some(record)), None) => {
                let Some(before) = &mut self.predecessor else { return Ok(()) };
                if before.is_over(record, began_ns, now_ns, times, (head, fencing)) {
                    self.predecessor_ended(now_ns);
                }
            }
            // Not written, or not checked: the lease is not extended.
            (_, Some(_)) => self.renew_at_ns = now_ns + times.renew_every_ns / 4,
            (_, None) => {}
        }
        Ok(())
    }
}

impl Predecessor {
    /// `record` was read after the claim.
    fn is_over(
        &mut self,
        record: LeaseRecord,
        began_ns: u64,
        now_ns: u64,
        times: &LeaseTimes,
        (head, fencing): (&str, Fencing),
    ) -> bool {
        if record != self.last.record {
            self.last = ObservedRecord { record, since_ns: now_ns };
        }
        if self.last.record.tenure == Tenure::Released {
            return true;
        }
        let is_run_out =
            began_ns.saturating_sub(self.last.since_ns) >= times.wait_ns(&self.last.record);
        let is_fenced = self.fence == FenceProgress::Done;
        is_run_out && (fencing != Fencing::Required || is_fenced)
            || is_fenced && fencing != Fencing::None && !self.names(head)
    }

    /// An earlier process of this very head cannot be fenced, and its kernel has ended it with its
    /// lease.
    fn names(&self, head: &str) -> bool {
        heads_through(&self.last.record).iter().any(|name| name == head)
    }
}

/// The heads that may serve in the record's epoch or an earlier one.
fn heads_through(record: &LeaseRecord) -> Vec<String> {
    let mut heads = record.before.clone();
    if record.tenure != Tenure::Released && !heads.contains(&record.head) {
        heads.push(record.head.clone());
    }
    heads
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn silent_or_released_peer_makes_a_standby_the_next_head() {
        let times = LeaseTimes::of(Duration::from_secs(10));
        let suspect_ns = 5_000_000_000;
        let is_next_after = |head: &str, tenure, silent_ns: u64| {
            let mut machine = LeaseMachine::new("a".into(), 2, times, Fencing::None);
            assert!(machine.next(1) == Step::ReadLatest && !machine.is_next(1));
            let record = LeaseRecord {
                epoch: Epoch(4),
                head: head.into(),
                process: 1,
                renewal: 9,
                tenure,
                before: Vec::new(),
                lease_ms: None,
            };
            machine.done(StepResult::Read(Some(record)), 1);
            machine.is_next(1 + silent_ns)
        };
        assert!(!is_next_after("b", Tenure::Active, suspect_ns - 1));
        assert!(
            is_next_after("b", Tenure::Active, suspect_ns)
                && is_next_after("b", Tenure::Released, 0)
        );
        // The clients of this head's earlier process are still here.
        assert!(
            !is_next_after("a", Tenure::Active, suspect_ns)
                && !is_next_after("a", Tenure::Released, 0)
        );
    }

    /// A standby that saw the first one would count from it, although the lease counts from the second.
    #[test]
    fn renewal_after_failed_one_has_another_number() {
        let times = LeaseTimes::of(Duration::from_secs(10));
        let mut machine = LeaseMachine::new("a".into(), 2, times, Fencing::None);
        let mut now_ns = 1;
        assert_eq!(machine.next(now_ns), Step::ReadLatest);
        machine.done(StepResult::Read(None), now_ns);
        assert!(matches!(machine.next(now_ns), Step::Claim(_)));
        machine.done(StepResult::Claimed(true), now_ns);
        let mut numbers = Vec::new();
        while numbers.len() < 4 {
            match machine.next(now_ns) {
                Step::Renew(record) => {
                    numbers.push(record.renewal);
                    machine.done(StepResult::Failed, now_ns);
                }
                Step::SleepUntil(at_ns) => now_ns = at_ns,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(numbers, [1, 2, 3, 4]);
    }

    #[test]
    fn standby_waits_for_the_longer_lease_of_two() {
        let takes_over_after = |lease_ms: Option<u64>, silent_ms: u64| {
            let mut machine = LeaseMachine::new(
                "b".into(),
                2,
                LeaseTimes::of(Duration::from_secs(5)),
                Fencing::None,
            );
            let (head, tenure) = ("a".to_owned(), Tenure::Active);
            let record = LeaseRecord {
                epoch: Epoch(4),
                head,
                process: 1,
                renewal: 9,
                tenure,
                before: Vec::new(),
                lease_ms,
            };
            for now_ns in [1, 1 + silent_ms * 1_000_000] {
                assert_eq!(machine.next(now_ns), Step::ReadLatest);
                machine.done(StepResult::Read(Some(record.clone())), now_ns);
            }
            match machine.next(1 + silent_ms * 1_000_000) {
                Step::Claim(claim) => Some(claim.lease_ms),
                _ => None,
            }
        };
        assert_eq!(takes_over_after(Some(60_000), 65_999), None);
        // A head that watches this claim waits for the lease of the head before, too.
        assert_eq!(takes_over_after(Some(60_000), 66_000), Some(Some(60_000)));
        for shorter in [None, Some(1000), Some(5000)] {
            assert_eq!(takes_over_after(shorter, 5_499), None);
            assert_eq!(takes_over_after(shorter, 5_500), Some(Some(5000)), "{shorter:?}");
        }
    }
}
