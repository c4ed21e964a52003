//! Ratios of subjects to their baselines: the median of many cases, and the slowest case.

use std::fmt::Write as _;

use super::chart::escape;
use crate::record::{CaseResult, Run};
use crate::statistics;

pub(super) fn sentences(run: &Run, page: &mut String) {
    for about in &run.subjects {
        let Some(Ratios { middle, worst, slowest, count }) =
            Ratios::of(run, &about.label, &run.results)
        else {
            continue;
        };
        let sentence = format!(
            "{}: {middle:.2} of the speed of {} in the median of {count} cases; slowest: {}, {}, {worst:.2}.",
            about.label,
            slowest.baseline(run),
            slowest.panel,
            slowest.name
        );
        let _ = writeln!(page, "<p>{}</p>", escape(&sentence));
    }
}

/// One row for each subject and workload that have a ratio.
pub(super) fn table(run: &Run, page: &mut String) {
    let mut rows = String::new();
    let mut workloads: Vec<&str> = Vec::new();
    for result in &run.results {
        if !workloads.contains(&result.workload.as_str()) {
            workloads.push(&result.workload);
        }
    }
    for workload in workloads {
        let results: Vec<&CaseResult> =
            run.results.iter().filter(|result| result.workload == workload).collect();
        let of_closed_loop =
            results.iter().filter(|result| workload != "iops" || result.x.is_none());
        let baselines = run.baselines(of_closed_loop.copied()).join(" or ");
        for about in &run.subjects {
            let ratios = Ratios::of(run, &about.label, results.iter().copied());
            let Some(Ratios { middle, worst, slowest, .. }) = ratios else { continue };
            let _ = writeln!(
                rows,
                "<tr><th>{} <small>{}, against {}</small></th><td><b>{middle:.2}</b></td><td>{worst:.2} <small>{}</small></td></tr>",
                escape(&about.label),
                escape(workload),
                escape(&baselines),
                escape(&slowest.name)
            );
        }
    }
    if !rows.is_empty() {
        let _ = write!(
            page,
            "<section class=\"glance\">\n<h2>At a glance</h2>\n<p>Speed relative to the baseline: the median of all cases of a workload, and the slowest case.</p>\n<table>\n<thead><tr><th></th><th>median</th><th>slowest case</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n"
        );
    }
}

/// Ratios of a subject to its baselines.
struct Ratios<'a> {
    middle: f64,
    worst: f64,
    slowest: &'a CaseResult,
    count: usize,
}

impl<'a> Ratios<'a> {
    /// `None` without ratios. Open-loop loads below the knee are left out: they have the same rate
    /// under every flavour.
    fn of(
        run: &Run,
        label: &str,
        results: impl IntoIterator<Item = &'a CaseResult>,
    ) -> Option<Self> {
        let compared = results.into_iter().filter(|result| {
            result.baseline(run) != label && (result.workload != "iops" || result.x.is_none())
        });
        let (ratios, cases): (Vec<f64>, Vec<&CaseResult>) =
            compared.filter_map(|result| Some((result.of(label)?.ratio?.median, result))).unzip();
        let (&worst, slowest) = ratios.iter().zip(&cases).min_by(|a, b| a.0.total_cmp(b.0))?;
        Some(Self { middle: statistics::median(&ratios), worst, slowest, count: ratios.len() })
    }
}
