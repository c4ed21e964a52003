//! What one measurement gave.

use serde::{Deserialize, Serialize};

use crate::case::Metric;
use crate::latency::Latency;
use crate::record::BUSIEST;

/// One measurement of one case on one subject.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// On the clock.
    pub seconds: f64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Operations, in the words of the case: a block read, a file copied.
    pub operations: u64,
    /// Operations that the server refused, or left without an answer.
    pub errors: u64,
    /// Of the errors, those that had no answer.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unanswered: u64,
    /// Calls that were due at a time and never sent, because none of those under way came back.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub unsent: u64,
    /// CPU seconds of the client, with the programs that it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_s: Option<f64>,
    /// CPU seconds of the server, where they can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_s: Option<f64>,
    /// CPU seconds of this machine that neither of them used, as a part of what it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<f64>,
    /// Whether the client kept a server of the same machine from more: the machine had nothing
    /// left, and the client the larger part of it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub crowds: bool,
    /// Calls in flight, where the server allowed fewer than were wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// What each node gave, by its name, where several took part.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nodes: Vec<(String, Sample)>,
    /// Other figures of this case, by name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub others: Vec<(String, f64)>,
    /// The latencies in short, kept where [`Sample::latency`] is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<Quantiles>,
    /// Latencies of the calls; from when they were due, where they were due at a time.
    #[serde(default)]
    pub latency: Latency,
}

/// Latencies of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half took no longer, microseconds.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// The mean.
    pub mean_us: f64,
}

impl Quantiles {
    /// Of a histogram; none of no calls.
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
    /// Speed of a measurement in parts of the other's: above 1 is faster.
    pub fn ratio(self, sample: &Sample, base: &Sample) -> f64 {
        let ratio = sample.figure(self) / base.figure(self);
        if self.more_is_better() { ratio } else { 1.0 / ratio }
    }
}

impl Sample {
    /// The case's figure.
    pub fn figure(&self, metric: Metric) -> f64 {
        match metric {
            Metric::BytesPerSecond => self.bytes as f64 / self.seconds,
            Metric::OperationsPerSecond => self.operations as f64 / self.seconds,
            Metric::Seconds => self.seconds,
        }
    }

    /// Adds what another node did at the same time.
    pub fn join(&mut self, node: String, other: Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.client_cpu_s = sum(self.client_cpu_s, other.client_cpu_s);
        // Of that which holds for all as soon as it holds for one: noise, a server that allowed fewer
        // calls, a generator that had no more to give.
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

    /// Notes what a part of the load generator used of a CPU; the most counts.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_node_suffers_from_the_run_is_told_of() {
        let node = |busiest, elsewhere, depth| {
            let mut sample = Sample { seconds: 1.0, operations: 10, elsewhere, depth, ..Sample::default() };
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
            let mut result = crate::record::CaseResult::new("iops", "p", "n", Metric::OperationsPerSecond);
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
