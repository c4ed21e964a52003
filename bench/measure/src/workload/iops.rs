//! After NetApp's ONTAP curves. The rate of an open-loop load rises until the subject no longer
//! reaches it.

use crate::byte_units::block;
use crate::case::{Load, Metric, Order};
use crate::runner::{PlannedCase, Runner};
use crate::{Case, Error};

#[derive(Debug, Clone)]
pub struct Iops {
    pub blocks: Vec<u32>,
    pub orders: Vec<Order>,
    pub reads: Vec<u8>,
    pub depth: u32,
    /// Up to the maximum of the fastest subject.
    pub steps: u32,
    pub seconds: f64,
    pub file_len: u64,
}

impl Iops {
    pub fn full() -> Self {
        let (blocks, orders, reads) =
            (vec![4096, 8192], vec![Order::Sequential, Order::Random], vec![100, 0]);
        Self { blocks, orders, reads, depth: 64, steps: 10, seconds: 3.0, file_len: 512 << 20 }
    }

    pub fn quick() -> Self {
        Self { blocks: vec![4096], steps: 5, seconds: 0.5, file_len: 32 << 20, ..Self::full() }
    }
}

pub fn iops(runner: &mut Runner, options: &Iops) -> Result<(), Error> {
    let curves: Vec<(u8, u32, Order)> = options
        .reads
        .iter()
        .flat_map(|&reads| {
            options.blocks.iter().flat_map(move |&block| {
                options.orders.iter().map(move |&order| (reads, block, order))
            })
        })
        .collect();
    let load = |(read_percent, block, order): (u8, u32, Order), rate| {
        let Iops { depth, seconds, file_len, .. } = *options;
        Case::Load(Load { order, block, read_percent, depth, rate, seconds, file_len })
    };
    let expected = |curves: &[(u8, u32, Order)], rate_count: usize| -> Vec<Case> {
        curves.iter().flat_map(|&curve| (0..=rate_count).map(move |_| load(curve, None))).collect()
    };
    runner.expect(&expected(&curves, options.steps as usize));
    for (index, &curve) in curves.iter().enumerate() {
        let panel = title(curve);
        let planned = |name: String, rate: Option<f64>| PlannedCase {
            metric: Metric::OperationsPerSecond,
            ..PlannedCase::new("iops", &panel, name, load(curve, rate))
        };
        runner.run_case(&planned("as fast as it goes".into(), None), &mut |_| true)?;
        let fastest = peaks(runner, &panel).into_iter().map(|(_, peak)| peak).fold(0.0, f64::max);
        if fastest <= 0.0 {
            continue;
        }
        let mut beyond: Vec<String> = Vec::new();
        let peaks: Vec<f64> = peaks(runner, &panel).into_iter().map(|(_, peak)| peak).collect();
        let rates = rates(&peaks, options.steps);
        // The number of rates depends on the subjects. Later curves will have as many.
        runner.expect_only(&expected(&curves[index..], rates.len())[1..]);
        for rate in rates {
            runner.run_case(
                &planned(format!("{rate:.0} a second"), Some(rate)).at(rate),
                &mut |label| !beyond.iter().any(|other| other == label),
            )?;
            let Some(result) = runner.run.results.last() else { break };
            if result.panel != panel {
                break;
            }
            beyond.extend(
                result
                    .subjects
                    .iter()
                    .filter(|subject| !result.is_held(subject))
                    .map(|subject| subject.label.clone()),
            );
        }
    }
    Ok(())
}

fn peaks(runner: &Runner, panel: &str) -> Vec<(String, f64)> {
    let result =
        runner.run.results.iter().rev().find(|result| result.panel == panel && result.x.is_none());
    result.map_or(Vec::new(), |result| {
        result
            .subjects
            .iter()
            .filter_map(|subject| Some((subject.label.clone(), subject.figure?.median)))
            .collect()
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

/// Fractions of the fastest subject's maximum, and for much slower subjects of their own.
fn rates(peaks: &[f64], steps: u32) -> Vec<f64> {
    let fastest = peaks.iter().copied().fold(0.0, f64::max);
    let slow = peaks.iter().copied().filter(|&peak| peak > 0.0 && peak < SLOW_SHARE * fastest);
    let own = slow.flat_map(|peak| SLOW_STEPS.map(|part| part * peak));
    let mut all: Vec<f64> = (1..=steps)
        .map(|step| fastest * f64::from(step) / f64::from(steps))
        .chain(own)
        .map(round)
        .collect();
    all.sort_by(f64::total_cmp);
    // Joins nearly equal rates, and keeps the fastest subject's maximum.
    let last = all.last().copied();
    all.dedup_by(|next, before| *next < 1.15 * *before && Some(*next) != last);
    all
}

fn round(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    (rate / unit).round().max(1.0) * unit
}

/// A subject below this share of the fastest one gets steps of its own.
const SLOW_SHARE: f64 = 0.6;
const SLOW_STEPS: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_subject_has_its_own_steps() {
        assert_eq!(rates(&[100_000.0], 5), [20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]);
        let all = rates(&[100_000.0, 70_000.0, 10_000.0], 2);
        assert_eq!(all, [2500.0, 5000.0, 7500.0, 10_000.0, 50_000.0, 100_000.0]);
        assert_eq!(
            rates(&[100_000.0, 50_000.0], 4),
            [13_000.0, 25_000.0, 38_000.0, 50_000.0, 75_000.0, 100_000.0]
        );
        assert!(rates(&[0.0, 40.0], 3).iter().all(|&rate| rate > 0.0 && rate <= 40.0));
    }
}
