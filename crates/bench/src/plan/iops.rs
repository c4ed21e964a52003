//! ONTAP's curves: latency against operations a second, by flavour. Load is stepped, open loop, until the knee: the step after which a
//! subject no longer does what is asked of it.

use crate::case::{Load, Metric, Order};
use crate::pairs::{Bench, Planned};
use crate::plan::block;
use crate::{Case, Error};

/// How.
#[derive(Debug, Clone)]
pub struct Iops {
    /// Bytes of an operation.
    pub blocks: Vec<u32>,
    /// Sequential, random.
    pub orders: Vec<Order>,
    /// Of 100, how many are reads: 100 and 0.
    pub reads: Vec<u8>,
    /// Calls in flight at most.
    pub depth: u32,
    /// Steps up to what the fastest does when it is asked for all.
    pub steps: u32,
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of the file.
    pub file_len: u64,
}

impl Iops {
    /// As the document has it.
    pub fn full() -> Self {
        let (blocks, orders, reads) = (vec![4096, 8192], vec![Order::Sequential, Order::Random], vec![100, 0]);
        Self { blocks, orders, reads, depth: 64, steps: 10, seconds: 3.0, file_len: 512 << 20 }
    }

    /// A first look.
    pub fn quick() -> Self {
        Self { blocks: vec![4096], steps: 5, seconds: 0.5, file_len: 32 << 20, ..Self::full() }
    }
}

/// Measures all curves.
pub fn iops(bench: &mut Bench, how: &Iops) -> Result<(), Error> {
    let curves: Vec<(u8, u32, Order)> = how
        .reads
        .iter()
        .flat_map(|&reads| how.blocks.iter().flat_map(move |&block| how.orders.iter().map(move |&order| (reads, block, order))))
        .collect();
    let load = |(read_percent, block, order): (u8, u32, Order), rate| {
        let Iops { depth, seconds, file_len, .. } = *how;
        Case::Load(Load { order, block, read_percent, depth, rate, seconds, file_len })
    };
    let expected: Vec<Case> = curves.iter().flat_map(|&curve| (0..=how.steps).map(move |_| curve)).map(|curve| load(curve, None)).collect();
    bench.expect(&expected);
    for curve in curves {
        let panel = title(curve);
        let planned = |name: String, rate: Option<f64>| Planned {
            metric: Metric::OperationsPerSecond,
            ..Planned::new("iops", &panel, name, load(curve, rate))
        };
        bench.case(&planned("as fast as it goes".into(), None), &mut |_| true)?;
        let fastest = peaks(bench, &panel).into_iter().map(|(_, peak)| peak).fold(0.0, f64::max);
        if fastest <= 0.0 {
            continue;
        }
        let mut beyond: Vec<String> = Vec::new();
        for step in 1..=how.steps {
            let rate = round(fastest * f64::from(step) / f64::from(how.steps));
            bench.case(&planned(format!("{rate:.0} a second"), Some(rate)).at(rate), &mut |label| {
                !beyond.iter().any(|other| other == label)
            })?;
            let Some(result) = bench.run.results.last() else { break };
            if result.panel != panel {
                break;
            }
            beyond.extend(
                result
                    .subjects
                    .iter()
                    .filter(|subject| subject.figure.is_none_or(|figure| figure.median < KNEE * rate))
                    .map(|subject| subject.label.clone()),
            );
        }
    }
    Ok(())
}

/// What each subject does of a panel when it is asked for all.
fn peaks(bench: &Bench, panel: &str) -> Vec<(String, f64)> {
    let result = bench.run.results.iter().rev().find(|result| result.panel == panel && result.x.is_none());
    result.map_or(Vec::new(), |result| {
        result.subjects.iter().filter_map(|subject| Some((subject.label.clone(), subject.figure?.median))).collect()
    })
}

fn title((reads, len, order): (u8, u32, Order)) -> String {
    let order = if order == Order::Sequential { "sequential" } else { "random" };
    let what = match reads {
        100 => "reads".into(),
        0 => "writes".into(),
        reads => format!("{reads}% reads"),
    };
    format!("{} {order} {what}", block(len))
}

/// Two digits: steps that can be read from a plot.
fn round(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    (rate / unit).round().max(1.0) * unit
}

/// Who does less than this part of what is due is past the knee.
const KNEE: f64 = 0.95;
