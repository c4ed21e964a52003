use serde_json::Value;

use super::format::{figure, latency, ratio};
use super::table::{columns, drop_empty, faults};
use crate::record::{CaseResult, Run, SubjectResult};
use crate::statistics::{Interval, SURE_COUNT_MIN};
use crate::{Case, escape};

/// With the second run's speed-up. The runs are not pairs: overlapping intervals show no
/// difference.
pub fn compare(a: &Run, b: &Run) -> String {
    let mut text = format!(
        "A: {} {}\n   {}\nB: {} {}\n   {}\n",
        a.began,
        a.command,
        a.machine.brief(),
        b.began,
        b.command,
        b.machine.brief()
    );
    for note in settings(a, b) {
        text.push_str(&format!("note: {note}\n"));
    }
    let (mut shared, mut few) = (0, false);
    for (workload, panel, results) in a.panels() {
        let mut notes: Vec<String> = Vec::new();
        let mut rows = vec![
            [
                "case",
                "on",
                "A",
                "B",
                "B / A",
                "",
                "A to baseline",
                "B to baseline",
                "faults of A",
                "of B",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for result in results {
            let same = |other: &&CaseResult| {
                (&other.workload, &other.panel, &other.name)
                    == (&result.workload, &result.panel, &result.name)
            };
            let Some(other) = b.results.iter().find(same) else { continue };
            let differs = differences(result.case.as_ref(), other.case.as_ref());
            // Ratios to different baselines are not comparable.
            let (ours, theirs) = (result.baseline(a), other.baseline(b));
            let apart = Some(format!("ratios are to {ours} in A and to {theirs} in B"))
                .filter(|_| ours != theirs);
            let ratio = |interval| if apart.is_none() { ratio(interval) } else { "–".into() };
            notes.extend(apart.clone().filter(|apart| !notes.contains(apart)));
            for subject in &result.subjects {
                let Some(theirs) = other.of(&subject.label) else { continue };
                let Some((row, is_sure)) =
                    subject_row((result, subject), (other, theirs), &differs, ratio)
                else {
                    continue;
                };
                rows.push(row);
                few |= !is_sure;
                shared += 1;
            }
        }
        if rows.len() > 1 {
            drop_empty(&mut rows);
            text.push_str(&format!("\n{workload}: {panel}\n{}", columns(&rows)));
            notes.iter().for_each(|note| text.push_str(&format!("  {note}: no ratio is shown\n")));
        }
    }
    if shared == 0 {
        text.push_str("\nthe runs have no case and subject in common\n");
    }
    if few {
        text.push_str(&format!(
            "\nnote: with fewer than {SURE_COUNT_MIN} rounds, nothing is called faster or slower\n"
        ));
    }
    escape::lines(&text)
}

fn subject_row(
    (result, subject): (&CaseResult, &SubjectResult),
    (other, theirs): (&CaseResult, &SubjectResult),
    differs: &str,
    ratio: impl Fn(Option<Interval>) -> String,
) -> Option<(Vec<String>, bool)> {
    // An open-loop load is compared by latency, if both did all calls.
    let held = result.is_held(subject) && other.is_held(theirs);
    let due = |subject: &SubjectResult| subject.latency.filter(|_| held).map(|latency| latency.p50);
    let (compared, (ours, to_base), (figures, their_to_base)) = match (due(subject), due(theirs)) {
        (Some(ours), Some(theirs)) => (None, (ours.us, ours.ratio), (theirs.us, theirs.ratio)),
        _ => {
            let (Some(ours), Some(figures)) = (subject.figure, theirs.figure) else { return None };
            (Some(result.metric), (ours, subject.ratio), (figures, theirs.ratio))
        }
    };
    let tell = |value| {
        compared.map_or_else(|| format!("p50 {}", latency(value)), |metric| figure(metric, value))
    };
    let more_is_better = compared.is_some_and(|metric| metric.more_is_better());
    let speed =
        if more_is_better { figures.median / ours.median } else { ours.median / figures.median };
    let sure = ours.is_sure() && figures.is_sure();
    let apart = sure && (ours.high < figures.low || figures.high < ours.low);
    let row = vec![
        result.name.clone(),
        subject.label.clone(),
        tell(ours.median),
        tell(figures.median),
        if differs.is_empty() { format!("{speed:.2}") } else { "–".into() },
        match differs.is_empty() {
            true if apart => (if speed > 1.0 { "faster" } else { "slower" }).into(),
            true => String::new(),
            false => format!("not the same: {differs}"),
        },
        ratio(to_base),
        ratio(their_to_base),
        faults(subject),
        faults(theirs),
    ];
    Some((row, sure))
}

fn settings(a: &Run, b: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if (&a.machine.cpu, a.machine.cores) != (&b.machine.cpu, b.machine.cores) {
        notes.push("the machines differ".to_owned());
    }
    let facts = |run: &Run| {
        let machine = &run.machine;
        [
            ("memory", format!("{} MiB", machine.memory >> 20)),
            ("instructions", machine.crypto.join(" ")),
            ("kernel", machine.kernel.clone()),
            ("governor", machine.governor.clone().unwrap_or_else(|| "unknown".into())),
            ("versions", machine.versions.join(", ")),
        ]
    };
    for ((what, ours), (_, theirs)) in facts(a).into_iter().zip(facts(b)) {
        if ours != theirs {
            notes.push(format!("{what} differ: A: {ours}; B: {theirs}"));
        }
    }
    for (name, run) in [("A", a), ("B", b)] {
        if run.interrupted {
            notes.push(format!("{name} was interrupted: it holds the results until then"));
        }
    }
    if a.quick != b.quick {
        notes.push(format!(
            "{} is a quick run (--quick) and the other is not",
            if a.quick { "A" } else { "B" }
        ));
    }
    for ours in &a.subjects {
        let Some(theirs) = b.subjects.iter().find(|theirs| theirs.label == ours.label) else {
            continue;
        };
        if ours.target != theirs.target {
            notes.push(format!(
                "{} has another target: A: {}; B: {}",
                ours.label, ours.target, theirs.target
            ));
        }
        if (&ours.sec, &ours.details) != (&theirs.sec, &theirs.details) {
            let tell = |about: &crate::subject::SubjectInfo| {
                about.sec.iter().chain(&about.details).cloned().collect::<Vec<_>>().join("; ")
            };
            notes.push(format!(
                "{} has other settings: A: {}; B: {}",
                ours.label,
                tell(ours),
                tell(theirs)
            ));
        }
    }
    notes
}

fn differences(a: Option<&Case>, b: Option<&Case>) -> String {
    let fields = |case: Option<&Case>| {
        serde_json::to_value(case)
            .ok()
            .and_then(|value| value.as_object().cloned())
            .unwrap_or_default()
    };
    let (a, b) = (fields(a), fields(b));
    let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
    let tell = |value: Option<&Value>| value.map_or("–".into(), Value::to_string);
    let differing = names.filter(|name| a.get(*name) != b.get(*name));
    differing
        .map(|name| format!("{name} {} and {}", tell(a.get(name)), tell(b.get(name))))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;
    use crate::case::Metric;
    use crate::subject::SubjectInfo;

    fn run(rounds: usize, rate: u64, depth: u32, detail: &str) -> Run {
        let mut run = Run::begin("test".into(), false);
        run.subjects = vec![SubjectInfo {
            label: "a".into(),
            target: "x".into(),
            sec: None,
            details: vec![detail.into()],
        }];
        let case = Some(Case::Getattr { depth, seconds: 1.0 });
        let mut result =
            CaseResult { case, ..CaseResult::new("iops", "p", "n", Metric::OperationsPerSecond) };
        let sample = Sample { seconds: 1.0, operations: rate, ..Sample::default() };
        result.sum_up("a", vec![("a".into(), vec![sample; rounds])]);
        run.results.push(result);
        run
    }

    #[test]
    fn faster_needs_enough_rounds() {
        let text = compare(&run(6, 100, 1, "x"), &run(6, 200, 1, "x"));
        assert!(text.contains("2.00  faster") && !text.contains("note:"), "{text}");
        let text = compare(&run(5, 100, 1, "x"), &run(6, 200, 1, "x"));
        assert!(
            text.contains("2.00")
                && !text.contains("2.00  faster")
                && text.contains("fewer than 6 rounds"),
            "{text}"
        );
    }

    #[test]
    fn other_baseline_or_target_is_noted_without_ratio() {
        let of = |baseline: &str, target: &str| {
            let mut run = run(6, 100, 1, "x");
            run.subjects[0].target = target.into();
            let samples = run.results[0].subjects[0].samples.clone();
            run.results[0]
                .sum_up(baseline, ["a", "b"].map(|label| (label.into(), samples.clone())).into());
            run
        };
        let text = compare(&of("a", "x"), &of("a", "x"));
        assert!(
            text.contains("A to baseline")
                && text.contains("[1.00–1.00]")
                && !text.contains("note:"),
            "{text}"
        );
        let text = compare(&of("a", "x"), &of("b", "y"));
        assert!(
            text.contains("ratios are to a in A and to b in B") && !text.contains("[1.00–1.00]"),
            "{text}"
        );
        assert!(text.contains("a has another target: A: x; B: y"), "{text}");
    }

    #[test]
    fn open_loop_loads_are_compared_by_latency() {
        let (fast, mut slow) = (crate::report::tests::steps(), crate::report::tests::steps());
        slow.results[0].subjects.remove(0);
        "a".clone_into(&mut slow.results[0].subjects[0].label);
        let text = compare(&fast, &slow);
        assert!(
            text.contains("p50 100 µs")
                && text.contains("p50 200 µs")
                && text.contains("0.50  slower"),
            "{text}"
        );
    }

    #[test]
    fn incomplete_run_and_other_system_are_noted() {
        let (good, mut bad) = (run(6, 100, 1, "x"), run(6, 100, 1, "x"));
        assert!(
            !compare(&good, &bad).contains("note:") && !compare(&good, &bad).contains("faults")
        );
        bad.interrupted = true;
        bad.machine.kernel = "another".into();
        bad.machine.governor = Some("powersave".into());
        bad.results[0].subjects[0].errors = 5000;
        let text = compare(&good, &bad);
        for expected in ["B was interrupted", "kernel differ", "governor differ", "5000 refused"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn other_parameters_are_not_compared() {
        let text = compare(&run(6, 100, 1, "x"), &run(6, 200, 8, "x"));
        assert!(
            text.contains("not the same: depth 1 and 8")
                && !text.contains("2.00")
                && !text.contains("faster"),
            "{text}"
        );
        let (mut quick, full) = (run(6, 100, 1, "1 session(s)"), run(6, 200, 1, "4 session(s)"));
        quick.quick = true;
        let text = compare(&quick, &full);
        assert!(
            text.contains("A is a quick run") && text.contains("A: 1 session(s); B: 4 session(s)"),
            "{text}"
        );
    }
}
