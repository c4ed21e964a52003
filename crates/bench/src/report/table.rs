//! The table on the terminal.

use super::words::{cpu, figure, latency, number, ratio};
use crate::plan::{Level, deltas};
use crate::record::Run;

/// All panels of a run, and what a reader should know.
pub fn table(run: &Run) -> String {
    let mut text = format!("{}\n", run.machine.brief());
    for (workload, panel, results) in run.panels() {
        text.push_str(&format!("\n{workload}: {panel}\n"));
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        for result in results {
            for (at, subject) in result.subjects.iter().enumerate() {
                let calls =
                    |value: fn(&crate::record::Calls) -> f64| subject.calls.as_ref().map_or("–".into(), |calls| latency(value(calls)));
                rows.push(vec![
                    if at == 0 { result.name.clone() } else { String::new() },
                    subject.label.clone(),
                    subject.figure.map_or("–".into(), |interval| figure(result.metric, interval.median)),
                    subject.figure.map_or("–".into(), |interval| format!("±{:.0}%", interval.spread() * 100.0)),
                    if subject.label == run.baseline() { "1".into() } else { ratio(subject.ratio) },
                    calls(|calls| calls.p50_us),
                    calls(|calls| calls.p99_us),
                    calls(|calls| calls.p999_us),
                    cpu(subject, subject.client_cpu_s),
                    cpu(subject, subject.server_cpu_s),
                    if subject.errors == 0 { String::new() } else { format!("{} errors", subject.errors) },
                ]);
            }
        }
        text.push_str(&columns(&rows));
    }
    text.push_str(&delta_table(run));
    for (head, lines) in [("left out", &run.left_out), ("note", &run.notes)] {
        for line in lines {
            text.push_str(&format!("\n{head}: {line}\n"));
        }
    }
    if run.interrupted {
        text.push_str("\ninterrupted: this is what there was until then\n");
    }
    text
}

/// What each subject adds and takes.
fn delta_table(run: &Run) -> String {
    let all = run.subjects.iter().skip(1).map(|about| (about.label.as_str(), deltas(run, &about.label)));
    let (others, of_each): (Vec<&str>, Vec<_>) = all.filter(|(_, rows)| !rows.is_empty()).unzip();
    let mut text = String::new();
    for (level, title) in [(Level::Low, "latency added, ms, low concurrency"), (Level::High, "maximum lost, %, high concurrency")] {
        let mut rows = vec![std::iter::once(String::new()).chain(others.iter().map(|label| (*label).to_owned())).collect::<Vec<_>>()];
        let names: Vec<&String> = of_each
            .iter()
            .max_by_key(|rows| rows.len())
            .map_or(Vec::new(), |rows| rows.iter().filter(|row| row.0 == level).map(|row| &row.1).collect());
        for name in names {
            let cells = of_each.iter().map(|rows| {
                rows.iter()
                    .find(|row| row.0 == level && row.1 == *name)
                    .map_or("–".into(), |row| if level == Level::Low { format!("{:+.3}", row.2) } else { number(row.2) })
            });
            rows.push(std::iter::once(name.clone()).chain(cells).collect());
        }
        if rows.len() > 1 {
            text.push_str(&format!("\n{title}, against {}\n{}", run.baseline(), columns(&rows)));
        }
    }
    text
}

/// Lines of cells, the first two to the left, the others to the right.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> =
        (0..count).map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from("  ");
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at] - cell.chars().count());
            line.push_str(&if at < 2 { format!("{cell}{pad}  ") } else { format!("{pad}{cell}  ") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

const HEAD: [&str; 11] = ["case", "on", "median", "±", "ratio [95%]", "p50", "p99", "p99.9", "client CPU", "server CPU", ""];
