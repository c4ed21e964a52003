use crate::Case;
use crate::case::Metric;
use crate::record::{Calls, CaseResult, LatencyAtRate, LatencyFigure, Run, SubjectResult};
use crate::statistics::{Interval, SURE_COUNT_MIN};
use crate::workload::Level;

pub(super) fn parameters(results: &[&CaseResult]) -> String {
    let all = results
        .iter()
        .filter_map(|result| result.case.as_ref())
        .map(Case::parameters)
        .filter(|words| !words.is_empty());
    let each = all.fold(Vec::new(), |mut seen: Vec<String>, words| {
        if !seen.contains(&words) {
            seen.push(words);
        }
        seen
    });
    each.join("; ")
}

pub fn figure(metric: Metric, value: f64) -> String {
    match metric {
        Metric::BytesPerSecond => format!("{} MB/s", number(value / 1e6)),
        Metric::OperationsPerSecond => format!("{} op/s", number(value)),
        Metric::Seconds => seconds(value),
    }
}

pub(super) fn axis(metric: Metric) -> &'static str {
    match metric {
        Metric::BytesPerSecond => "MB/s",
        Metric::OperationsPerSecond => "operations a second",
        Metric::Seconds => "seconds",
    }
}

pub(super) fn on_axis(metric: Metric, value: f64) -> f64 {
    if metric == Metric::BytesPerSecond { value / 1e6 } else { value }
}

pub(super) fn number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "–".into(),
        n if n >= 99.95 => thousands(value.round()),
        n if n >= 9.995 => format!("{value:.1}"),
        n if n >= 0.9995 || n == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn seconds(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".into(),
        n if n < 1e-3 => format!("{} µs", number(n * 1e6)),
        n if n < 1.0 => format!("{} ms", number(n * 1e3)),
        n => format!("{} s", number(n)),
    }
}

pub(super) fn latency(us: f64) -> String {
    seconds(us / 1e6)
}

pub(super) fn ratio(interval: Option<Interval>) -> String {
    interval.map_or("–".into(), |interval| within(interval, &|value| format!("{value:.2}")))
}

pub(super) fn uncertainty(interval: Option<Interval>) -> String {
    interval
        .filter(|interval| interval.values > 1)
        .map_or("–".into(), |interval| format!("±{:.0}%", interval.spread() * 100.0))
}

type OfCalls = fn(&Calls) -> f64;
type OfStep = fn(LatencyAtRate) -> LatencyFigure;
type Spread<'a> = &'a dyn Fn(Option<Interval>, &dyn Fn(f64) -> String) -> String;

pub(super) const PERCENTILES: [(&str, OfCalls, OfStep); 2] = [
    ("median", |calls| calls.p50_us, |of| of.p50),
    ("99th percentile", |calls| calls.p99_us, |of| of.p99),
];

/// The cells of a subject that text and HTML share: median, spread and ratio of the figure, then of
/// each percentile; p99.9; CPU of client and server.
pub(super) fn cells(
    run: &Run,
    result: &CaseResult,
    subject: &SubjectResult,
    spread: Spread<'_>,
) -> Vec<String> {
    let calls =
        |value: OfCalls| subject.calls.as_ref().map_or(NONE.into(), |calls| latency(value(calls)));
    let is_baseline = subject.label == result.baseline(run);
    let against = |interval, is_measured| {
        if is_baseline && is_measured { "1".into() } else { ratio(interval) }
    };
    let tell = |value| figure(result.metric, value);
    let unless_held = unless_held(result, subject);
    let mut cells = vec![
        subject.figure.map_or(NONE.into(), |interval| tell(interval.median)),
        spread(unless_held.and_then(|subject| subject.figure), &tell),
        against(unless_held.and_then(|subject| subject.ratio), unless_held.is_some()),
    ];
    for (_, value, part) in PERCENTILES {
        let due = subject.latency.map(part);
        cells.push(due.map_or_else(|| calls(value), |of| latency(of.us.median)));
        cells.push(spread(due.map(|of| of.us), &latency));
        cells.push(against(due.and_then(|of| of.ratio), due.is_some()));
    }
    cells.extend([
        calls(|calls| calls.p999_us),
        cpu(subject, subject.client_cpu_s),
        cpu(subject, subject.server_cpu_s),
    ]);
    cells
}

pub(super) fn other_cells(subject: &SubjectResult, names: &[String]) -> Vec<String> {
    let entries = subject.rounds().others;
    let of = |name: &String| entries.iter().find(|other| other.0 == *name);
    names.iter().map(|name| of(name).map_or(NONE.into(), |other| number(other.1))).collect()
}

/// Added latency in ms, or lost throughput in percent.
pub(super) fn delta(
    rows: &[(Level, String, Interval)],
    level: Level,
    name: &str,
) -> Option<String> {
    let (_, _, interval) = rows.iter().find(|row| row.0 == level && row.1 == name)?;
    Some(match level {
        Level::Low => within(*interval, &|value| format!("{value:+.3}")),
        Level::High => within(*interval, &number),
    })
}

pub(super) const NONE: &str = "–";

/// None if the subject did all calls of an open-loop load: the rate then says nothing.
fn unless_held<'a>(result: &CaseResult, subject: &'a SubjectResult) -> Option<&'a SubjectResult> {
    Some(subject).filter(|subject| subject.latency.is_none() || !result.is_held(subject))
}

pub(super) fn within(
    Interval { median, low, high, values }: Interval,
    tell: &dyn Fn(f64) -> String,
) -> String {
    if values < 2 {
        tell(median)
    } else {
        format!("{} [{}–{}]", tell(median), tell(low), tell(high))
    }
}

pub(super) fn confidence(results: &[&CaseResult]) -> String {
    let all =
        || results.iter().flat_map(|result| &result.subjects).filter_map(|subject| subject.figure);
    let (least, most) = all().fold((usize::MAX, 0), |(least, most), figure| {
        (figure.values.min(least), figure.values.max(most))
    });
    match (least, most) {
        (least, _) if least >= SURE_COUNT_MIN && most > 0 => "95%".into(),
        (_, most) if most >= SURE_COUNT_MIN => format!("95%; below {SURE_COUNT_MIN} rounds: range"),
        (least, most) if least == most => {
            format!("range of {most} round{}", if most == 1 { "" } else { "s" })
        }
        (least, most) => format!("range of {} to {most} rounds", least.min(most)),
    }
}

pub(super) fn cpu(subject: &SubjectResult, seconds_an_operation: Option<f64>) -> String {
    let Some(s) = seconds_an_operation else { return "–".into() };
    match subject.operation_len >= LARGE {
        true => format!("{} s/GiB", number(s * (1u64 << 30) as f64 / subject.operation_len)),
        false => format!("{} µs", number(s * 1e6)),
    }
}

pub(super) fn by_bytes(result: &CaseResult) -> bool {
    result.subjects.iter().any(|subject| subject.operation_len >= LARGE)
}

const LARGE: f64 = 32.0 * 1024.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_have_range_instead_of_confidence() {
        let of = |rounds: &[usize]| {
            let sample = crate::Sample { seconds: 1.0, operations: 10, ..crate::Sample::default() };
            let mut result = CaseResult::new("iops", "p", "n", Metric::OperationsPerSecond);
            result.sum_up(
                "0",
                rounds
                    .iter()
                    .enumerate()
                    .map(|(at, rounds)| (at.to_string(), vec![sample.clone(); *rounds]))
                    .collect(),
            );
            confidence(&[&result])
        };
        assert_eq!(of(&[6, 10]), "95%");
        assert_eq!(of(&[3, 3]), "range of 3 rounds");
        assert_eq!(of(&[1]), "range of 1 round");
        assert_eq!(of(&[2, 3]), "range of 2 to 3 rounds");
        assert!(of(&[3, 6]).contains("below 6 rounds"));
    }

    #[test]
    fn numbers_have_three_digits_and_unit() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.1234, "0.123"),
            (1.236, "1.24"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(seconds(0.000_012_3), "12.3 µs");
        assert_eq!(seconds(0.5), "500 ms");
        assert_eq!(figure(Metric::BytesPerSecond, 1.5e9), "1,500 MB/s");
        assert_eq!(figure(Metric::OperationsPerSecond, f64::NAN), "– op/s");
    }
}
