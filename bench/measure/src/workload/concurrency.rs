//! After Azure NetApp Files' table: added latency at low concurrency and lost throughput at high
//! concurrency.

use crate::Case;
use crate::case::{Load, Metric, Order};
use crate::record::{Run, SubjectResult};
use crate::runner::PlannedCase;
use crate::statistics::Interval;

#[derive(Debug, Clone)]
pub struct Concurrency {
    pub depth: u32,
    pub mixes: Vec<u8>,
    pub large: u32,
    pub small: u32,
    pub seconds: f64,
    pub file_len: u64,
}

impl Concurrency {
    pub fn full() -> Self {
        Self {
            depth: 64,
            mixes: vec![100, 75, 50, 25, 0],
            large: 64 * 1024,
            small: 4096,
            seconds: 3.0,
            file_len: 512 << 20,
        }
    }

    pub fn quick() -> Self {
        Self { mixes: vec![100, 50, 0], seconds: 0.5, file_len: 32 << 20, ..Self::full() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Low,
    High,
}

pub fn concurrency(options: &Concurrency) -> Vec<PlannedCase> {
    let mut plan = Vec::new();
    for (panel, depth) in [(LOW, 1), (HIGH, options.depth)] {
        for (order, block, metric) in [
            (Order::Sequential, options.large, Metric::BytesPerSecond),
            (Order::Random, options.small, Metric::OperationsPerSecond),
        ] {
            for &read_percent in &options.mixes {
                let Concurrency { seconds, file_len, .. } = *options;
                let case = Case::Load(Load {
                    order,
                    block,
                    read_percent,
                    depth,
                    rate: None,
                    seconds,
                    file_len,
                });
                let name = format!(
                    "{} {}",
                    if order == Order::Sequential { "sequential" } else { "random" },
                    mix(read_percent)
                );
                plan.push(PlannedCase {
                    metric,
                    ..PlannedCase::new("concurrency", panel, name, case)
                });
            }
        }
        plan.push(PlannedCase::new(
            "concurrency",
            panel,
            "metadata",
            Case::Metadata { depth, seconds: options.seconds },
        ));
    }
    plan
}

/// Milliseconds at low concurrency, percent at high, by case, from pairs of the same round. Empty
/// for the baseline, and without a ratio.
pub(crate) fn deltas(run: &Run, label: &str) -> Vec<(Level, String, Interval)> {
    let mut rows = Vec::new();
    for result in run
        .results
        .iter()
        .filter(|result| result.workload == "concurrency" && result.baseline(run) != label)
    {
        let (Some(base), Some(subject)) = (result.of(result.baseline(run)), result.of(label))
        else {
            continue;
        };
        let Some(ratio) = subject.ratio else { continue };
        if result.panel == LOW {
            rows.extend(
                added_latency(subject, base).map(|added| (Level::Low, result.name.clone(), added)),
            );
        } else {
            let lost = |ratio: f64| (1.0 - ratio) * 100.0;
            let lost = Interval {
                median: lost(ratio.median),
                low: lost(ratio.high),
                high: lost(ratio.low),
                values: ratio.values,
            };
            rows.push((Level::High, result.name.clone(), lost));
        }
    }
    rows
}

/// Milliseconds of a call.
pub(crate) fn added_latency(subject: &SubjectResult, base: &SubjectResult) -> Option<Interval> {
    if let Some(rounds) = &subject.rounds {
        return rounds.added_ms;
    }
    let pairs = subject.samples.iter().zip(&base.samples);
    let added: Vec<f64> = pairs
        .filter_map(|(sample, base)| Some((sample.calls?.mean_us - base.calls?.mean_us) / 1e3))
        .collect();
    // Earlier records hold only the latencies of all rounds together.
    let whole = || Some((subject.calls.as_ref()?.mean_us - base.calls.as_ref()?.mean_us) / 1e3);
    Interval::of(&added).or_else(|| Interval::of(&[whole()?]))
}

fn mix(reads: u8) -> String {
    match reads {
        100 => "reads".into(),
        0 => "writes".into(),
        reads => format!("{reads}% reads"),
    }
}

const LOW: &str = "Low concurrency";
const HIGH: &str = "High concurrency";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use crate::record::CaseResult;
    use crate::subject::SubjectInfo;

    #[test]
    fn added_latency_is_median_of_pairs() {
        let round = |us: u64| {
            let mut sample = Sample { seconds: 1.0, operations: 100, ..Sample::default() };
            sample.latency.record_many(us * 1000, 100);
            sample
        };
        let mut run = Run::begin("test".into(), false);
        let about = |label: &str| SubjectInfo {
            label: label.into(),
            target: "x".into(),
            sec: None,
            details: Vec::new(),
        };
        run.subjects = ["sys", "krb5p"].map(about).into();
        let mut result =
            CaseResult::new("concurrency", LOW, "random reads", Metric::OperationsPerSecond);
        let base = [100, 1000, 2000, 3000, 4000, 5000];
        let added = [100, 110, 120, 110, 100, 110];
        let other = base.iter().zip(added).map(|(base, added)| round(base + added)).collect();
        result.sum_up("sys", vec![("sys".into(), base.map(round).into()), ("krb5p".into(), other)]);
        run.results.push(result);
        let rows = deltas(&run, "krb5p");
        let [(Level::Low, _, added)] = &rows[..] else { panic!("{rows:?}") };
        assert!((0.105..0.115).contains(&added.median) && added.is_sure(), "{added:?}");
        assert!(
            (0.095..0.105).contains(&added.low) && (0.115..0.125).contains(&added.high),
            "{added:?}"
        );
        assert!(deltas(&run, "sys").is_empty());
    }
}
