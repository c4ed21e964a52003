use serde::{Deserialize, Serialize};

use crate::case::Metric;
use crate::latency::Latency;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    pub seconds: f64,
    pub bytes: u64,
    /// As the case defines them: blocks read, files copied.
    pub operations: u64,
    /// Operations that the server refused or did not answer.
    pub errors: u64,
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unanswered: u64,
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unsent: u64,
    /// Includes programs that the client started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_s: Option<f64>,
    /// None if unreadable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<f64>,
    /// No CPU time was left on a shared machine, and the client used most of it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub crowds: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nodes: Vec<(String, Sample)>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub others: Vec<(String, f64)>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<Quantiles>,
    /// In an open loop they count from the due time.
    #[serde(default)]
    pub latency: Latency,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub mean_us: f64,
}

impl Quantiles {
    pub fn of(latency: &Latency) -> Option<Self> {
        (latency.count() > 0).then(|| Self {
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            p999_us: latency.quantile_us(0.999),
            mean_us: latency.mean_us(),
        })
    }
}

impl Metric {
    /// Speed relative to `base`. Above 1 is faster.
    pub fn ratio(self, sample: &Sample, base: &Sample) -> f64 {
        let ratio = sample.figure(self) / base.figure(self);
        if self.more_is_better() { ratio } else { 1.0 / ratio }
    }
}

impl Sample {
    pub fn figure(&self, metric: Metric) -> f64 {
        match metric {
            Metric::BytesPerSecond => self.bytes as f64 / self.seconds,
            Metric::OperationsPerSecond => self.operations as f64 / self.seconds,
            Metric::Seconds => self.seconds,
        }
    }

    pub fn join(&mut self, node: String, other: Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.client_cpu_s = sum(self.client_cpu_s, other.client_cpu_s);
        self.elsewhere = self.elsewhere.into_iter().chain(other.elsewhere).reduce(f64::max);
        self.crowds |= other.crowds;
        self.depth = self.depth.into_iter().chain(other.depth).min();
        for (name, value) in &other.others {
            match self.others.iter_mut().find(|(ours, _)| ours == name) {
                Some((_, ours)) if name == BUSIEST => *ours = ours.max(*value),
                Some((_, ours)) => *ours += value,
                None => self.others.push((name.clone(), *value)),
            }
        }
        self.latency.merge(&other.latency);
        self.nodes.push((node, other));
    }

    pub(crate) fn busy(&mut self, part: f64) {
        match self.others.iter_mut().find(|(name, _)| name == BUSIEST) {
            Some((_, most)) => *most = most.max(part),
            None => self.others.push((BUSIEST.into(), part)),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

pub(crate) const BUSIEST: &str = "busiest client thread";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_on_one_node_applies_to_run() {
        let node = |busiest, elsewhere, depth| {
            let mut sample =
                Sample { seconds: 1.0, operations: 10, elsewhere, depth, ..Sample::default() };
            sample.busy(busiest);
            sample.others.push(("records".into(), 2.0));
            sample
        };
        let mut sum = Sample::default();
        sum.join("a".into(), node(0.3, Some(0.01), None));
        sum.join("b".into(), node(0.99, Some(0.5), Some(32)));
        sum.join("c".into(), node(0.4, None, Some(64)));
        assert_eq!((sum.operations, sum.elsewhere, sum.depth), (30, Some(0.5), Some(32)));
        assert_eq!(sum.others, [(BUSIEST.to_owned(), 0.99), ("records".to_owned(), 6.0)]);
        let limited = |sample: Sample| {
            let mut result =
                crate::record::CaseResult::new("iops", "p", "n", Metric::OperationsPerSecond);
            result.sum_up("fleet", vec![("fleet".into(), vec![sample])]);
            result.subjects[0].client_is_limit
        };
        assert!(limited(sum));
        let mut sum = Sample::default();
        for crowds in [false, true] {
            sum.join("a".into(), Sample { seconds: 1.0, crowds, ..Sample::default() });
            assert_eq!(limited(sum.clone()), crowds);
        }
    }
}
