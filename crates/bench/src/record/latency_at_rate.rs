//! What a step of a curve is about: calls are due at a rate, so that the rate is what was asked for
//! and the latency is what came of it. How certain that is, and how it compares, of pairs of the
//! same round.

use serde::{Deserialize, Serialize};

use super::{CaseResult, KNEE, SubjectResult};
use crate::Case;
use crate::case::Load;
use crate::sample::{Quantiles, Sample};
use crate::statistics::Interval;

/// Latencies of a load that is due at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyAtRate {
    /// Of the middle call of each round.
    pub p50: LatencyFigure,
    /// Of that which 99 of 100 were not longer than.
    pub p99: LatencyFigure,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigure {
    /// Microseconds, of the rounds.
    pub us: Interval,
    /// The baseline's in parts of this, of pairs of the same round: above 1 is faster.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// Microseconds more than the baseline's, of pairs of the same round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_us: Option<Interval>,
}

/// A latency of a round.
type Part = fn(Quantiles) -> f64;

impl LatencyFigure {
    /// None where not each round has latencies: the rounds of two subjects would not be pairs.
    fn of(samples: &[Sample], base: Option<&[Sample]>, part: Part) -> Option<Self> {
        let of_each = |samples: &[Sample]| samples.iter().map(|sample| sample.calls.map(part)).collect::<Option<Vec<f64>>>();
        let (ours, theirs) = (of_each(samples)?, base.and_then(of_each));
        let pairs = |of: fn(f64, f64) -> f64| {
            let theirs = theirs.as_ref()?;
            Interval::of(&ours.iter().zip(theirs).map(|(ours, theirs)| of(*ours, *theirs)).collect::<Vec<f64>>())
        };
        Some(Self { us: Interval::of(&ours)?, ratio: pairs(|ours, base| base / ours), added_us: pairs(|ours, base| ours - base) })
    }
}

impl CaseResult {
    /// Calls a second that are due, if it is a step of a curve.
    pub fn rate(&self) -> Option<f64> {
        match self.case {
            Some(Case::Load(Load { rate, .. })) => rate,
            _ => None,
        }
    }

    /// Whether it is a step, and a subject has done what was due: then how much it did tells
    /// nothing of it.
    pub fn is_held(&self, subject: &SubjectResult) -> bool {
        self.rate().is_some_and(|rate| subject.figure.is_some_and(|figure| figure.median >= KNEE * rate))
    }

    /// Sums up the latencies of a step. Who has no ratio to the baseline has none here either.
    pub(super) fn sum_up_latencies(&mut self, baseline: &str) {
        if self.rate().is_none() {
            return;
        }
        let base = self.of(baseline).map(|base| base.samples.clone());
        for subject in &mut self.subjects {
            let of = |part: Part| LatencyFigure::of(&subject.samples, base.as_deref().filter(|_| subject.ratio.is_some()), part);
            subject.latency = of(|calls| calls.p50_us).zip(of(|calls| calls.p99_us)).map(|(p50, p99)| LatencyAtRate { p50, p99 });
        }
    }
}

impl SubjectResult {
    /// Takes all ratios away.
    pub(super) fn take_ratios(&mut self) {
        self.ratio = None;
        if let Some(LatencyAtRate { p50, p99 }) = &mut self.latency {
            (p50.ratio, p50.added_us, p99.ratio, p99.added_us) = (None, None, None, None);
        }
    }
}
