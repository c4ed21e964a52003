use serde::{Deserialize, Serialize};

use super::{CaseResult, KNEE_SHARE, SubjectResult};
use crate::Case;
use crate::case::Load;
use crate::sample::{Quantiles, Sample};
use crate::statistics::Interval;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyAtRate {
    pub p50: LatencyFigure,
    pub p99: LatencyFigure,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyFigure {
    pub us: Interval,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub added_us: Option<Interval>,
}

type Part = fn(Quantiles) -> f64;

impl LatencyFigure {
    fn of(samples: &[Sample], base: Option<&[Sample]>, part: Part) -> Option<Self> {
        let of_each = |samples: &[Sample]| {
            samples.iter().map(|sample| sample.calls.map(part)).collect::<Option<Vec<f64>>>()
        };
        let (ours, theirs) = (of_each(samples)?, base.and_then(of_each));
        let pairs = |of: fn(f64, f64) -> f64| {
            let theirs = theirs.as_ref()?;
            Interval::of(
                &ours
                    .iter()
                    .zip(theirs)
                    .map(|(ours, theirs)| of(*ours, *theirs))
                    .collect::<Vec<f64>>(),
            )
        };
        Some(Self {
            us: Interval::of(&ours)?,
            ratio: pairs(|ours, base| base / ours),
            added_us: pairs(|ours, base| ours - base),
        })
    }
}

impl CaseResult {
    pub(crate) fn rate(&self) -> Option<f64> {
        match self.case {
            Some(Case::Load(Load { rate, .. })) => rate,
            _ => None,
        }
    }

    pub(crate) fn is_held(&self, subject: &SubjectResult) -> bool {
        self.rate().is_some_and(|rate| {
            subject.figure.is_some_and(|figure| figure.median >= KNEE_SHARE * rate)
        })
    }

    pub(super) fn sum_up_latencies(&mut self, baseline: &str) {
        if self.rate().is_none() {
            return;
        }
        let base = self.of(baseline).map(|base| base.samples.clone());
        for subject in &mut self.subjects {
            let of = |part: Part| {
                LatencyFigure::of(
                    &subject.samples,
                    base.as_deref().filter(|_| subject.ratio.is_some()),
                    part,
                )
            };
            subject.latency = of(|calls| calls.p50_us)
                .zip(of(|calls| calls.p99_us))
                .map(|(p50, p99)| LatencyAtRate { p50, p99 });
        }
    }
}

impl SubjectResult {
    pub(super) fn take_ratios(&mut self) {
        self.ratio = None;
        if let Some(LatencyAtRate { p50, p99 }) = &mut self.latency {
            (p50.ratio, p50.added_us, p99.ratio, p99.added_us) = (None, None, None, None);
        }
    }
}
