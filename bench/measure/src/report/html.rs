//! HTML report in one file without external resources.

use std::fmt::Write as _;

use super::chart::{Axes, Bar, Line, Point, bars, escape, lines, short};
use super::format::{
    NONE, PERCENTILES, axis, by_bytes, cells, confidence, cpu, delta, figure, latency, number,
    on_axis, other_cells,
};
use super::glance;
use crate::case::Metric;
use crate::record::{CaseResult, Run, SubjectResult};
use crate::statistics::Interval;
use crate::workload::{Level, deltas};

pub fn html(run: &Run) -> String {
    let mut page = begin("What it costs", &run.began);
    let _ = write!(page, "<p class=\"lead\">{}</p>\n</header>\n<main>\n", escape(&lead(run)));
    body(run, "", &mut page);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

pub fn html_of_runs(runs: &[Run]) -> String {
    let began = runs.iter().map(|run| run.began.as_str()).max().unwrap_or_default();
    let mut page = begin("Results", began);
    page.push_str(
        "<p class=\"lead\">Each part repeats the measurements of one document. A ratio of 1 is the speed of the baseline.</p>\n<nav><ul>\n",
    );
    for (number, run) in runs.iter().enumerate() {
        let _ = writeln!(
            page,
            "<li><a href=\"#run-{number}\">{}</a></li>",
            escape(&heading(runs, run))
        );
    }
    page.push_str("</ul></nav>\n</header>\n<main>\n");
    for (number, run) in runs.iter().enumerate() {
        let _ = write!(
            page,
            "<article id=\"run-{number}\">\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
            escape(&heading(runs, run)),
            escape(&lead(run))
        );
        glance::sentences(run, &mut page);
        body(run, &format!("run-{number}-"), &mut page);
        page.push_str("</article>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

pub(super) fn begin(title: &str, began: &str) -> String {
    let mut page = String::with_capacity(64 * 1024);
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}: {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
        escape(began)
    );
    page
}

fn body(run: &Run, prefix: &str, page: &mut String) {
    caveats(run, page);
    glance::table(run, page);
    delta_table(run, page);
    notes(run, page);
    let mut workload = "";
    for (of, panel, results) in run.panels() {
        if of != workload {
            if !workload.is_empty() {
                page.push_str("</section>\n");
            }
            let _ = write!(
                page,
                "<section id=\"{prefix}{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
                escape(of),
                escape(of),
                escape(about(of))
            );
            workload = of;
        }
        plot(run, of, panel, &results, page);
    }
    if !workload.is_empty() {
        page.push_str("</section>\n");
    }
    page.push_str("<footer>\n<h2>How this was measured</h2>\n");
    conditions(run, page);
    let _ = write!(page, "<p>{METHOD}</p>\n</footer>\n");
}

fn heading(runs: &[Run], run: &Run) -> String {
    if runs.iter().filter(|other| document(other) == document(run)).count() == 1 {
        return document(run).to_owned();
    }
    let subjects: Vec<&str> = run.subjects.iter().map(|subject| subject.label.as_str()).collect();
    format!("{}: {}", document(run), subjects.join(", "))
}

fn document(run: &Run) -> &'static str {
    match run.results.first().map(|result| result.workload.as_str()) {
        Some("transfer") => "LANL: kerberized NFS",
        Some("iops") => "NetApp ONTAP: Kerberos and the processor's AES instructions",
        Some("concurrency") => "Azure NetApp Files: the cost of Kerberos",
        Some("audit") => "LANL: the cost of auditing",
        Some("tree") => "SFSRO: a read-only file system (OSDI 2000)",
        Some("seal") => "Message protection on one core",
        _ => "Other measurements",
    }
}

fn lead(run: &Run) -> String {
    let date = run.began.split('T').next().unwrap_or_default();
    let baselines = run.baselines(&run.results);
    let [base] = baselines[..] else {
        return format!(
            "{} subjects in {} comparisons, measured on {date}. Each part names the baseline of its ratios: 1 is the baseline's speed, 0.5 is half of it.",
            run.subjects.len(),
            baselines.len()
        );
    };
    let others = run
        .subjects
        .iter()
        .map(|about| about.label.as_str())
        .filter(|label| *label != base)
        .collect::<Vec<_>>()
        .join(", ");
    match others.is_empty() {
        true => format!("{base}, measured on {date}."),
        false => format!(
            "{others} against {base}, measured on {date}. A ratio of 1 is the speed of {base}; 0.5 is half of it."
        ),
    }
}

/// Warnings on the whole run, before its figures.
fn caveats(run: &Run, page: &mut String) {
    for (applies, text) in [
        (run.interrupted, "The run was interrupted. These are the results until then."),
        (
            run.quick,
            "Quick run (--quick): small sizes, three rounds. Use a full run for decisions.",
        ),
    ] {
        if applies {
            let _ = writeln!(page, "<p class=\"note\">{text}</p>");
        }
    }
}

fn notes(run: &Run, page: &mut String) {
    if run.notes.is_empty() {
        return;
    }
    let count = if run.notes.len() == 1 {
        "1 warning".into()
    } else {
        format!("{} warnings", run.notes.len())
    };
    let _ = writeln!(page, "<details class=\"note\"><summary>{count} of this run</summary>");
    for note in &run.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    page.push_str("</details>\n");
}

fn delta_table(run: &Run, page: &mut String) {
    let mut table = String::new();
    delta_rows(run, &mut table);
    if !table.is_empty() {
        let _ = writeln!(
            page,
            "<section class=\"delta\">\n<h2>Added latency and lost throughput</h2>\n{table}</section>"
        );
    }
}

/// Cells of the body are HTML.
pub(super) fn write_table(
    page: &mut String,
    class: &str,
    head: impl IntoIterator<Item = String>,
    rows: impl IntoIterator<Item = String>,
) {
    let head: String = head.into_iter().map(|cell| format!("<th>{}</th>", escape(&cell))).collect();
    let _ = writeln!(
        page,
        "<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>{head}</tr></thead>\n<tbody>"
    );
    rows.into_iter().for_each(|row| page.push_str(&format!("<tr>{row}</tr>\n")));
    page.push_str("</tbody>\n</table></div>\n");
}

pub(super) fn delta_rows(run: &Run, page: &mut String) {
    let of_each: Vec<_> = run
        .subjects
        .iter()
        .map(|about| (&about.label, deltas(run, &about.label)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let Some((_, longest)) = of_each.iter().max_by_key(|(_, rows)| rows.len()) else { return };
    let of_it: Vec<&CaseResult> =
        run.results.iter().filter(|result| result.workload == "concurrency").collect();
    let _ = writeln!(
        page,
        "<p>Against {}: added latency with one call at a time, and lost throughput with many calls (negative: gained); in brackets: {}.</p>",
        escape(&run.baselines(of_it.iter().copied()).join(", ")),
        escape(&confidence(&of_it))
    );
    let head =
        std::iter::once("case".to_owned()).chain(of_each.iter().map(|(label, _)| (*label).clone()));
    let rows = longest.iter().map(|(level, name, _)| {
        let (what, unit) = if *level == Level::Low { ("low", "ms") } else { ("high", "%") };
        let cell = |cell: String| format!("{cell} {unit}");
        let cells = of_each.iter().map(|(_, rows)| {
            format!("<td>{}</td>", delta(rows, *level, name).map_or(NONE.into(), cell))
        });
        format!("<th>{what}: {}</th>{}", escape(name), cells.collect::<String>())
    });
    write_table(page, "deltas", head, rows);
}

pub(super) fn plot(
    run: &Run,
    workload: &str,
    panel: &str,
    results: &[&CaseResult],
    page: &mut String,
) {
    let _ = writeln!(page, "<h3>{}</h3>", escape(panel));
    if run.baselines(&run.results).len() > 1 {
        let _ = writeln!(
            page,
            "<p>Ratios are to {}.</p>",
            escape(&run.baselines(results.iter().copied()).join(", "))
        );
    }
    let how = super::format::parameters(results);
    if !how.is_empty() {
        let _ = writeln!(page, "<p><small>{}</small></p>", escape(&how));
    }
    let metric = results[0].metric;
    let stepped = results.iter().filter(|result| result.x.is_some()).count();
    let title = format!("{workload}: {panel}");
    if workload == "iops" && stepped > 0 {
        plot_latency(run, &title, results, page);
    } else if stepped > 1 {
        let series = series(run, results, |result, subject| {
            let (interval, x) = (subject.figure?, result.x?);
            let (y, low, high) = (
                on_axis(metric, interval.median),
                on_axis(metric, interval.low),
                on_axis(metric, interval.high),
            );
            Some(Point {
                x,
                y,
                low,
                high,
                says: format!(
                    "{}: {}, {}",
                    subject.label,
                    result.name,
                    figure(metric, interval.median)
                ),
            })
        });
        let (name, tell_x): (_, fn(f64) -> String) = match workload {
            "transfer" => ("bytes of the file", |x| crate::byte_units::size(x as u64)),
            "tree" => ("clients", |x| format!("{x:.0}")),
            _ => ("", number),
        };
        let axes =
            Axes { title: &title, x: name, y: axis(metric), log_x: true, log_y: false, tell_x };
        let _ = writeln!(page, "<figure>{}</figure>", lines(&axes, &series));
    } else {
        let mut metrics: Vec<Metric> = Vec::new();
        for result in results {
            if !metrics.contains(&result.metric) {
                metrics.push(result.metric);
            }
        }
        for metric in metrics {
            let groups = groups(
                run,
                results.iter().filter(|result| result.metric == metric),
                |_, subject| {
                    let interval = subject.figure?;
                    let uncertainty =
                        Some((on_axis(metric, interval.low), on_axis(metric, interval.high)));
                    Some((
                        vec![on_axis(metric, interval.median)],
                        uncertainty,
                        figure(metric, interval.median),
                    ))
                },
            );
            let _ = writeln!(page, "<figure>{}</figure>", bars(&title, axis(metric), &groups));
        }
    }
    cpu_bars(run, &title, results, page);
    figures(run, results, page);
}

fn plot_latency(run: &Run, title: &str, results: &[&CaseResult], page: &mut String) {
    for (name, value, part) in PERCENTILES {
        let series = series(run, results, |result, subject| {
            let (calls, figure) = (subject.calls.as_ref()?, subject.figure?);
            result.x?;
            // Earlier records hold only the latencies of all rounds together.
            let certain = || Interval {
                median: value(calls),
                low: value(calls),
                high: value(calls),
                values: 1,
            };
            let Interval { median: y, low, high, .. } =
                subject.latency.map_or_else(certain, |of| part(of).us);
            let says = format!(
                "{}: {} op/s, {} ({} – {})",
                subject.label,
                number(figure.median),
                latency(y),
                latency(low),
                latency(high)
            );
            Some(Point { x: figure.median, y: y / 1e3, low: low / 1e3, high: high / 1e3, says })
        });
        let unit = format!("latency, {name}, ms");
        let axes = Axes {
            title: &format!("{title}, {name}"),
            x: "operations a second",
            y: &unit,
            log_x: false,
            log_y: true,
            tell_x: short,
        };
        let _ = writeln!(page, "<figure>{}</figure>", lines(&axes, &series));
    }
}

fn cpu_bars(run: &Run, title: &str, results: &[&CaseResult], page: &mut String) {
    for (large, drawing) in cpu_drawings(run, title, results) {
        let of = if large { "" } else { " of an operation" };
        let _ = writeln!(
            page,
            "<details><summary>CPU{of}</summary><figure>{drawing}</figure></details>"
        );
    }
}

/// A plot; true if it shows CPU time per byte.
pub(super) fn cpu_drawings(run: &Run, title: &str, results: &[&CaseResult]) -> Vec<(bool, String)> {
    let mut drawings = Vec::new();
    for large in [true, false] {
        let of = results.iter().filter(|result| {
            by_bytes(result) == large && (result.workload != "iops" || result.x.is_none())
        });
        let groups = groups(run, of, |_, subject| {
            let unit = if subject.operation_len > 0.0 && large {
                (1u64 << 30) as f64 / subject.operation_len
            } else {
                1e6
            };
            let (client, server) = (subject.client_cpu_s?, subject.server_cpu_s);
            let tells = match server {
                Some(_) => format!("{} + {}", cpu(subject, Some(client)), cpu(subject, server)),
                None => cpu(subject, Some(client)),
            };
            Some((vec![client * unit, server.unwrap_or(0.0) * unit], None, tells))
        });
        if groups.iter().any(|(_, bars)| !bars.is_empty()) {
            let unit = if large {
                "CPU, seconds a GiB: client, and server fainter"
            } else {
                "CPU, µs an operation: client, and server fainter"
            };
            drawings.push((large, bars(&format!("{title}, CPU"), unit, &groups)));
        }
    }
    drawings
}

fn figures(run: &Run, results: &[&CaseResult], page: &mut String) {
    const HEAD: &str = "case|on|median|within (95%)|ratio|p50|p50 within|p50 ratio|p99|p99 within|p99 ratio|p99.9|client CPU|server CPU|rounds|errors, unsent";
    let others = super::table::other_names(results);
    let head = HEAD.replace("95%", &confidence(results));
    let of_each = results
        .iter()
        .flat_map(|result| result.subjects.iter().map(move |subject| (*result, subject)));
    let rows = of_each.map(|(result, subject)| {
        let mut row = vec![escape(&result.name), escape(&subject.label)];
        row.extend(cells(run, result, subject, &|interval, tell| {
            let interval = interval.filter(|interval| interval.values > 1);
            interval.map_or(NONE.into(), |interval| {
                format!("{} – {}", tell(interval.low), tell(interval.high))
            })
        }));
        row.extend([subject.rounds().count.to_string(), super::table::faults(subject)]);
        row.extend(other_cells(subject, &others));
        format!("<td>{}</td>", row.join("</td><td>"))
    });
    page.push_str("<details><summary>Figures</summary>\n");
    let head = head.split('|').map(str::to_owned).chain(others.iter().cloned());
    write_table(page, "deltas", head, rows);
    page.push_str("</details>\n");
}

pub(super) fn conditions(run: &Run, page: &mut String) {
    let machine = &run.machine;
    page.push_str("<dl>\n");
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(page, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
        }
    };
    row("Command", run.command.clone());
    let end = if run.interrupted { "interrupted after" } else { "took" };
    row("Begun", format!("{}, {end} {}", run.began, super::format::seconds(run.seconds)));
    for about in &run.subjects {
        row(
            &escape(&about.label),
            std::iter::once(about.target.clone())
                .chain(about.details.clone())
                .collect::<Vec<_>>()
                .join("; "),
        );
    }
    row(
        "Machine",
        format!(
            "{} × {}, {} GiB",
            machine.cores,
            machine.cpu,
            number(machine.memory as f64 / (1u64 << 30) as f64)
        ),
    );
    for (name, machine) in &run.nodes {
        row(&escape(name), machine.brief());
    }
    row("Instructions", machine.crypto.join(" "));
    row("Governor", machine.governor.clone().unwrap_or_else(|| "unknown".into()));
    row("System", format!("{}, Linux {}", machine.system, machine.kernel));
    row("Network", machine.network.join("; "));
    row("Load at the start", machine.load.clone());
    row("Versions", machine.versions.join("; "));
    row("Not measured", run.left_out.join("; "));
    page.push_str("</dl>\n");
}

fn series(
    run: &Run,
    results: &[&CaseResult],
    point: impl Fn(&CaseResult, &SubjectResult) -> Option<Point>,
) -> Vec<Line> {
    let all = run.subjects.iter().enumerate().map(|(look, about)| {
        let points =
            results.iter().filter_map(|result| point(result, result.of(&about.label)?)).collect();
        Line { label: about.label.clone(), look, points }
    });
    all.filter(|line| !line.points.is_empty()).collect()
}

pub(super) type Drawn = (Vec<f64>, Option<(f64, f64)>, String);

pub(super) fn groups<'a>(
    run: &Run,
    results: impl Iterator<Item = &'a &'a CaseResult>,
    bar: impl Fn(&CaseResult, &SubjectResult) -> Option<Drawn>,
) -> Vec<(String, Vec<Bar>)> {
    let look =
        |label: &str| run.subjects.iter().position(|about| about.label == label).unwrap_or(0);
    let of = |result: &CaseResult| {
        let drawn =
            result.subjects.iter().filter_map(|subject| Some((subject, bar(result, subject)?)));
        drawn
            .map(|(subject, (parts, uncertainty, tells))| Bar {
                label: subject.label.clone(),
                look: look(&subject.label),
                parts,
                uncertainty,
                tells,
            })
            .collect::<Vec<_>>()
    };
    results
        .map(|result| (result.name.clone(), of(result)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect()
}

fn about(workload: &str) -> &'static str {
    match workload {
        "transfer" => {
            "Copies of whole files to the subject and back: rate by file size, and time for many small and some large files. After LANL's study of Kerberos NFS."
        }
        "iops" => {
            "Latency at rising rates, until the server no longer keeps up. After NetApp's ONTAP curves."
        }
        "concurrency" => {
            "One call at a time and many: large sequential and small random operations from pure read to pure write, and metadata as git makes it. After Azure NetApp Files."
        }
        "tree" => {
            "Small and large reads of a published tree with and without verification and caches, clients that replay a compile, and connections a second. After the SFS read-only paper."
        }
        "audit" => {
            "The same work without auditing, with watches, and with rules on system calls. After LANL's study of auditd."
        }
        "seal" => {
            "Kerberos message protection on one core: each encryption type, by message size and batch size."
        }
        _ => "",
    }
}

pub(super) const METHOD: &str = "Subjects are measured in turn, round after round, after a first round that does not count. A ratio compares two measurements of the same \
         round. With six rounds or more, an interval holds the true median with 95% confidence (sign test; bootstrap from sixteen rounds on). With fewer rounds \
         it is the range of the rounds. Added latency is the median of differences within a round. Latency curves are open loop: calls are due at a fixed rate, so \
         the wait for a slow server counts as latency. Data read is compared with data written, with two exceptions. For loads by fio on mounts, fio compares a checksum in each \
         page, which does not detect a lost write. HTTPS responses are only counted. CPU time is that of processes, user and system. The time of kernel threads that work for a \
         mount (NFS: rpciod, kworkers) is not included; the description of that subject says so.";
pub(super) const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::super::tests::steps;
    use super::*;

    #[test]
    fn page_of_several_runs_has_unique_ids_and_names_documents() {
        let mut audit = steps();
        audit.results[0].workload = "audit".into();
        let page = html_of_runs(&[steps(), audit, steps()]);
        let mut ids: Vec<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), count), (6, 6), "an article and a section for each run");
        for text in ["NetApp ONTAP", "LANL: the cost of auditing", "<a href=\"#run-2\">"] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<footer>").count(), 3);
    }
}
