//! Two runs side by side.

use super::table::columns;
use super::words::{figure, ratio};
use crate::record::Run;

/// What both have measured, and how much faster the second is. The runs are not pairs: intervals that overlap mean no difference is
/// shown.
pub fn compare(a: &Run, b: &Run) -> String {
    let mut text =
        format!("A: {} {}\n   {}\nB: {} {}\n   {}\n", a.began, a.command, a.machine.brief(), b.began, b.command, b.machine.brief());
    if (&a.machine.cpu, a.machine.cores) != (&b.machine.cpu, b.machine.cores) {
        text.push_str("note: these are different machines\n");
    }
    let mut shared = 0;
    for (workload, panel, results) in a.panels() {
        let mut rows = vec![["case", "on", "A", "B", "B / A", "", "A to baseline", "B to baseline"].map(str::to_owned).to_vec()];
        for result in results {
            let other = b
                .results
                .iter()
                .find(|other| (&other.workload, &other.panel, &other.name) == (&result.workload, &result.panel, &result.name));
            for subject in &result.subjects {
                let Some(theirs) = other.and_then(|other| other.of(&subject.label)) else { continue };
                let (Some(ours), Some(figures)) = (subject.figure, theirs.figure) else { continue };
                let speed = if result.metric.more_is_better() { figures.median / ours.median } else { ours.median / figures.median };
                let apart = ours.high < figures.low || figures.high < ours.low;
                rows.push(vec![
                    result.name.clone(),
                    subject.label.clone(),
                    figure(result.metric, ours.median),
                    figure(result.metric, figures.median),
                    format!("{speed:.2}"),
                    if apart { (if speed > 1.0 { "faster" } else { "slower" }).into() } else { String::new() },
                    ratio(subject.ratio),
                    ratio(theirs.ratio),
                ]);
                shared += 1;
            }
        }
        if rows.len() > 1 {
            text.push_str(&format!("\n{workload}: {panel}\n{}", columns(&rows)));
        }
    }
    if shared == 0 {
        text.push_str("\nthey have no case and subject in common\n");
    }
    text
}
