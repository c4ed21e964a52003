//! How long clients wait: from a fault to their next success with a later head.

use crate::prelude::*;

/// The first success of one client in each epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstSuccesses(Vec<(u64, Instant)>);

impl FirstSuccesses {
    pub(super) fn note(&mut self, epoch: u64) {
        if self.0.last().is_none_or(|(last, _)| *last != epoch) {
            self.0.push((epoch, Instant::now()));
        }
    }

    /// From the end of `epoch` until the first success in a later one.
    pub(super) fn pause_after(&self, epoch: u64, end: Instant) -> Option<Duration> {
        self.0.iter().find(|(later, _)| *later > epoch).map(|(_, first)| first.duration_since(end))
    }
}

pub(super) fn print(of: &str, mut pauses: Vec<Duration>) {
    pauses.sort();
    let Some(last) = pauses.len().checked_sub(1) else { return };
    let at = |percent: usize| pauses[last * percent / 100].as_secs_f64();
    println!(
        "failover: {of}: p50 {:.2} s, p99 {:.2} s, most {:.2} s of {}",
        at(50),
        at(99),
        at(100),
        pauses.len()
    );
}
