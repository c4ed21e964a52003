//! Azure NetApp Files: what a flavour adds to latency at low concurrency, and takes from the maximum at high.

use crate::Case;
use crate::case::{Load, Metric, Order};
use crate::pairs::Planned;
use crate::record::Run;

/// How.
#[derive(Debug, Clone)]
pub struct Concurrency {
    /// Calls in flight at high concurrency.
    pub depth: u32,
    /// Of 100, how many are reads.
    pub mixes: Vec<u8>,
    /// Bytes of a sequential operation.
    pub large: u32,
    /// Bytes of a random operation.
    pub small: u32,
    /// Seconds of each.
    pub seconds: f64,
    /// Bytes of the file.
    pub file_len: u64,
}

impl Concurrency {
    /// As the document has it.
    pub fn full() -> Self {
        Self { depth: 64, mixes: vec![100, 75, 50, 25, 0], large: 64 * 1024, small: 4096, seconds: 3.0, file_len: 512 << 20 }
    }

    /// A first look.
    pub fn quick() -> Self {
        Self { mixes: vec![100, 50, 0], seconds: 0.5, file_len: 32 << 20, ..Self::full() }
    }
}

/// The two levels of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// One call at a time.
    Low,
    /// As many as bring out the maximum.
    High,
}

/// The cases.
pub fn concurrency(how: &Concurrency) -> Vec<Planned> {
    let mut plan = Vec::new();
    for (panel, depth) in [(LOW, 1), (HIGH, how.depth)] {
        for (order, block, metric) in
            [(Order::Sequential, how.large, Metric::BytesPerSecond), (Order::Random, how.small, Metric::OperationsPerSecond)]
        {
            for &read_percent in &how.mixes {
                let Concurrency { seconds, file_len, .. } = *how;
                let case = Case::Load(Load { order, block, read_percent, depth, rate: None, seconds, file_len });
                let name = format!("{} {}", if order == Order::Sequential { "sequential" } else { "random" }, mix(read_percent));
                plan.push(Planned { metric, ..Planned::new("concurrency", panel, name, case) });
            }
        }
        plan.push(Planned::new("concurrency", panel, "metadata", Case::Metadata { depth, seconds: how.seconds }));
    }
    plan
}

/// The document's table: what each subject adds to the baseline's mean latency (milliseconds, low concurrency) and takes from its
/// maximum (percent, high concurrency), case by case.
pub fn deltas(run: &Run, label: &str) -> Vec<(Level, String, f64)> {
    let (base, results) = (run.baseline(), run.results.iter().filter(|result| result.workload == "concurrency"));
    let mut rows = Vec::new();
    for result in results {
        let (Some(base), Some(subject)) = (result.of(base), result.of(label)) else { continue };
        if result.panel == LOW {
            if let (Some(base), Some(subject)) = (&base.calls, &subject.calls) {
                rows.push((Level::Low, result.name.clone(), (subject.mean_us - base.mean_us) / 1e3));
            }
        } else if let Some(ratio) = subject.ratio {
            rows.push((Level::High, result.name.clone(), (1.0 - ratio.median) * 100.0));
        }
    }
    rows
}

fn mix(reads: u8) -> String {
    match reads {
        100 => "reads".into(),
        0 => "writes".into(),
        reads => format!("{reads}% reads"),
    }
}

/// Panels.
const LOW: &str = "Low concurrency";
const HIGH: &str = "High concurrency";
