use super::format::{NONE, cells, confidence, delta, other_cells, parameters, uncertainty};
use crate::record::{CaseResult, Rounds, Run, SubjectResult};
use crate::workload::{Level, deltas};
use crate::{Case, escape};

pub fn table(run: &Run) -> String {
    let mut text = format!("{}\n", run.machine.brief());
    run.nodes
        .iter()
        .for_each(|(name, machine)| text.push_str(&format!("{name}: {}\n", machine.brief())));
    let several = run.baselines(&run.results).len() > 1;
    for (workload, panel, results) in run.panels() {
        let against = if several {
            format!(", against {}", run.baselines(results.iter().copied()).join(", "))
        } else {
            String::new()
        };
        text.push_str(&format!("\n{workload}: {panel}{against}\n"));
        let how = parameters(&results);
        if !how.is_empty() {
            text.push_str(&format!("  {how}\n"));
        }
        text.push_str(&panel_rows(run, &results));
    }
    text.push_str(&delta_table(run));
    for (head, lines) in [("not measured", &run.left_out), ("note", &run.notes)] {
        for line in lines {
            text.push_str(&format!("\n{head}: {line}\n"));
        }
    }
    if run.interrupted {
        text.push_str("\ninterrupted: these are the results until then\n");
    }
    if run.incomplete {
        text.push_str("\nincomplete: something failed, see \"not measured\" above\n");
    }
    escape::lines(&text)
}

fn panel_rows(run: &Run, results: &[&CaseResult]) -> String {
    let others = other_names(results);
    let head = HEAD.map(|name| name.replace("95%", &confidence(results)));
    let mut rows = vec![
        head.into_iter().chain(others.iter().cloned()).chain([String::new()]).collect::<Vec<_>>(),
    ];
    for result in results {
        for (at, subject) in result.subjects.iter().enumerate() {
            let name = if at == 0 { result.name.clone() } else { String::new() };
            let mut row = vec![name, subject.label.clone()];
            row.extend(cells(run, result, subject, &|interval, _| uncertainty(interval)));
            row.extend(other_cells(subject, &others));
            row.push(faults(subject));
            rows.push(row);
        }
    }
    if results.iter().all(|result| matches!(result.case, Some(Case::Connect { .. }))) {
        // The client limits connections a second, so the server's CPU time comes first.
        rows.iter_mut().for_each(|row| {
            let server = row.remove(SERVER_CPU);
            row.insert(2, server);
        });
    }
    drop_empty(&mut rows);
    columns(&rows)
}

pub(super) fn other_names(results: &[&CaseResult]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in results
        .iter()
        .flat_map(|result| &result.subjects)
        .flat_map(|subject| subject.rounds().others)
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

pub(super) fn faults(subject: &SubjectResult) -> String {
    let Rounds { unanswered, unsent, in_flight, .. } = subject.rounds();
    let entries = [
        (subject.errors.saturating_sub(unanswered), "refused"),
        (unanswered, "unanswered"),
        (unsent, "unsent"),
    ];
    let entries = entries
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"));
    // Fewer calls in flight than planned make latencies shorter.
    entries
        .chain(in_flight.map(|depth| format!("{depth} in flight")))
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn drop_empty(rows: &mut [Vec<String>]) {
    let says = |rows: &[Vec<String>], at: usize| {
        rows[1..].iter().any(|row| row.get(at).is_some_and(|cell| !cell.is_empty() && cell != NONE))
    };
    let count = rows.first().map_or(0, Vec::len);
    for at in (0..count).rev().filter(|at| !says(rows, *at)).collect::<Vec<_>>() {
        rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
}

fn delta_table(run: &Run) -> String {
    let all = run.subjects.iter().map(|about| (about.label.as_str(), deltas(run, &about.label)));
    let (others, of_each): (Vec<&str>, Vec<_>) = all.filter(|(_, rows)| !rows.is_empty()).unzip();
    let mut text = String::new();
    for (level, title) in [
        (Level::Low, "added latency, ms, low concurrency"),
        (Level::High, "lost throughput, %, high concurrency"),
    ] {
        let mut rows = vec![
            std::iter::once(String::new())
                .chain(others.iter().map(|label| (*label).to_owned()))
                .collect::<Vec<_>>(),
        ];
        let names: Vec<&String> =
            of_each.iter().max_by_key(|rows| rows.len()).map_or(Vec::new(), |rows| {
                rows.iter().filter(|row| row.0 == level).map(|row| &row.1).collect()
            });
        for name in names {
            let cells =
                of_each.iter().map(|rows| delta(rows, level, name).unwrap_or_else(|| NONE.into()));
            rows.push(std::iter::once(name.clone()).chain(cells).collect());
        }
        if rows.len() > 1 {
            let results: Vec<&CaseResult> =
                run.results.iter().filter(|result| result.workload == "concurrency").collect();
            let against = run.baselines(results.iter().copied()).join(", ");
            text.push_str(&format!(
                "\n{title}, against {against} [{}]\n{}",
                confidence(&results),
                columns(&rows)
            ));
        }
    }
    text
}

pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from("  ");
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at] - cell.chars().count());
            line.push_str(&if at < 2 {
                format!("{cell}{pad}  ")
            } else {
                format!("{pad}{cell}  ")
            });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

const HEAD: [&str; 14] = [
    "case",
    "on",
    "median",
    "±",
    "ratio [95%]",
    "p50",
    "p50 ±",
    "p50 ratio [95%]",
    "p99",
    "p99 ±",
    "p99 ratio [95%]",
    "p99.9",
    "client CPU",
    "server CPU",
];
const SERVER_CPU: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use crate::case::Metric;

    #[test]
    fn connections_show_server_cpu_first() {
        let sample = Sample {
            seconds: 1.0,
            operations: 10,
            server_cpu_s: Some(1e-3),
            client_cpu_s: Some(1.0),
            ..Sample::default()
        };
        let case = Some(Case::Connect { depth: 1, seconds: 1.0 });
        let mut result = CaseResult {
            case,
            ..CaseResult::new("tree", "Connections", "n", Metric::OperationsPerSecond)
        };
        result.sum_up("replica", vec![("replica".into(), vec![sample; 6])]);
        let mut run = Run::begin("test".into(), true);
        run.results.push(result);
        let table = table(&run);
        assert!(
            table.find("server CPU") < table.find("median")
                && table.find("100 µs") < table.find("10.0 op/s"),
            "{table}"
        );
    }

    #[test]
    fn open_loop_load_shows_interval_of_latency_only() {
        let mut run = crate::report::tests::steps();
        let mut whole = CaseResult { case: None, ..run.results[0].clone() };
        whole.subjects.iter_mut().for_each(|subject| subject.latency = None);
        run.results.push(whole);
        let table = table(&run);
        let cells = |words: &str| {
            let line = table
                .lines()
                .find(|line| line.contains(words))
                .unwrap_or_else(|| panic!("{words}: {table}"));
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let head = cells("p50 ratio");
        let row = cells("  b  ");
        let of = |name: &str| {
            &row[head.iter().position(|cell| cell.starts_with(name)).expect("a column")
                - (head.len() - row.len())]
        };
        assert_eq!(
            (&of("p50")[..], &of("p50 ±")[..], &of("p50 ratio")[..], &of("±")[..]),
            ("200 µs", "±10%", "0.50 [0.50–0.50]", "–"),
            "{table}"
        );
    }

    #[test]
    fn empty_columns_are_removed() {
        let mut sample = Sample {
            seconds: 2.0,
            operations: 10,
            errors: 5,
            unanswered: 4,
            unsent: 7,
            ..Sample::default()
        };
        sample.others.push(("context switches".into(), 1234.0));
        sample.others.push((crate::sample::BUSIEST.into(), 0.5));
        let mut result = CaseResult::new("audit", "Time", "files", Metric::Seconds);
        result.sum_up("off", vec![("off".into(), vec![sample])]);
        let mut run = Run::begin("test".into(), true);
        run.results.push(result);
        let table = table(&run);
        assert!(
            table.contains("context switches")
                && table.contains("1,234")
                && table.contains("1 refused, 4 unanswered, 7 unsent"),
            "{table}"
        );
        assert!(
            !table.contains("p99") && !table.contains("server CPU") && !table.contains("busiest"),
            "{table}"
        );
    }
}
