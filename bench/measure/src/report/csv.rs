use crate::record::{CaseResult, Run};
use crate::sample::Quantiles;

/// RFC 4180. The last columns are other figures of the cases.
pub fn csv(run: &Run) -> String {
    let others = super::table::other_names(&run.results.iter().collect::<Vec<&CaseResult>>());
    let mut text = String::from(
        "workload,panel,case,x,subject,round,figure,unit,seconds,bytes,operations,errors,unanswered,unsent,in_flight,client_cpu_s,server_cpu_s,others_part,p50_us,p99_us,p999_us,ratio,p50_ratio,p99_ratio",
    );
    others.iter().for_each(|name| text.push_str(&format!(",{}", quoted(name))));
    text.push_str("\r\n");
    for result in &run.results {
        let unit = super::format::axis(result.metric);
        let base = result.of(result.baseline(run)).map_or(&[][..], |base| &base.samples);
        for subject in &result.subjects {
            for (round, sample) in subject.samples.iter().enumerate() {
                let number =
                    |value: Option<f64>| value.map(|value| format!("{value}")).unwrap_or_default();
                let calls = sample.calls;
                let ratio = base
                    .get(round)
                    .filter(|_| subject.ratio.is_some())
                    .map(|base| result.metric.ratio(sample, base));
                // The baseline's latency divided by this one. Above 1 is faster.
                let slower = |part: fn(Quantiles) -> f64| {
                    let base = base
                        .get(round)
                        .filter(|_| subject.ratio.is_some() && result.rate().is_some())?;
                    Some(part(base.calls?) / part(calls?))
                };
                let cells = [
                    quoted(&result.workload),
                    quoted(&result.panel),
                    quoted(&result.name),
                    number(result.x),
                    quoted(&subject.label),
                    format!("{}", round + 1),
                    format!(
                        "{}",
                        super::format::on_axis(result.metric, sample.figure(result.metric))
                    ),
                    quoted(unit),
                    format!("{}", sample.seconds),
                    format!("{}", sample.bytes),
                    format!("{}", sample.operations),
                    format!("{}", sample.errors),
                    format!("{}", sample.unanswered),
                    format!("{}", sample.unsent),
                    sample.depth.map(|depth| depth.to_string()).unwrap_or_default(),
                    number(sample.client_cpu_s),
                    number(sample.server_cpu_s),
                    number(sample.elsewhere),
                    number(calls.map(|calls| calls.p50_us)),
                    number(calls.map(|calls| calls.p99_us)),
                    number(calls.map(|calls| calls.p999_us)),
                    number(ratio),
                    number(slower(|calls| calls.p50_us)),
                    number(slower(|calls| calls.p99_us)),
                ];
                let entries = others.iter().map(|name| {
                    number(sample.others.iter().find(|other| other.0 == *name).map(|other| other.1))
                });
                text.push_str(&cells.into_iter().chain(entries).collect::<Vec<_>>().join(","));
                text.push_str("\r\n");
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    // A spreadsheet would read such a cell as a formula.
    let text =
        if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use crate::case::Metric;
    use crate::record::CaseResult;
    use crate::subject::SubjectInfo;

    fn column(run: &Run, name: &str) -> Vec<String> {
        let lines = csv(run);
        let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split(',').collect()).collect();
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        let at = lines[0].iter().position(|other| *other == name).expect("a column");
        lines[1..].iter().map(|line| line[at].to_owned()).collect()
    }

    fn numbers(run: &Run, name: &str) -> Vec<f64> {
        column(run, name).iter().map(|cell| cell.parse().expect("a number")).collect()
    }

    #[test]
    fn lines_have_latency_and_ratio_of_their_round() {
        let round = |operations: u64, us: u64| {
            let mut sample = Sample { seconds: 1.0, operations, ..Sample::default() };
            sample.latency.record_many(us * 1000, operations);
            sample
        };
        let mut run = Run::begin("test".into(), false);
        run.subjects = vec![SubjectInfo {
            label: "a".into(),
            target: "x".into(),
            sec: None,
            details: Vec::new(),
        }];
        let mut result = CaseResult::new("iops", "p", "n", Metric::OperationsPerSecond);
        let (a, b) = (vec![round(100, 10), round(100, 20)], vec![round(50, 30), round(200, 40)]);
        result.sum_up("a", vec![("a".into(), a), ("b".into(), b)]);
        run.results.push(result);
        assert_eq!(numbers(&run, "ratio"), [1.0, 1.0, 0.5, 2.0]);
        let latencies = numbers(&run, "p50_us");
        assert!(
            latencies.len() == 4
                && latencies
                    .iter()
                    .zip([10.0, 20.0, 30.0, 40.0])
                    .all(|(us, near)| (us / near - 1.0).abs() < 0.01)
        );
        let ratios = numbers(&crate::report::tests::steps(), "p50_ratio");
        assert!(
            ratios[..6].iter().all(|ratio| *ratio == 1.0)
                && ratios[6..].iter().all(|ratio| (ratio - 0.5).abs() < 0.01),
            "{ratios:?}"
        );
    }

    #[test]
    fn other_figures_and_smaller_depth_have_columns() {
        let sample = |switches: Option<f64>, depth| {
            let others =
                switches.map(|count| ("context switches".to_owned(), count)).into_iter().collect();
            Sample {
                seconds: 1.0,
                operations: 5,
                errors: 3,
                unanswered: 2,
                depth,
                others,
                ..Sample::default()
            }
        };
        let mut run = Run::begin("test".into(), false);
        let mut result = CaseResult::new("audit", "p", "n", Metric::Seconds);
        let (a, b) = (vec![sample(Some(12.0), None)], vec![sample(None, Some(31))]);
        result.sum_up("a", vec![("a".into(), a), ("b".into(), b)]);
        run.results.push(result);
        for (name, cells) in [
            ("context switches", ["12", ""]),
            ("in_flight", ["", "31"]),
            ("unanswered", ["2", "2"]),
            ("errors", ["3", "3"]),
        ] {
            assert_eq!(column(&run, name), cells, "{name}");
        }
    }
}
