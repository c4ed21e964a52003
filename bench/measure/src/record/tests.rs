use super::*;
use crate::case::Load;

fn sample(seconds: f64, operations: u64) -> Sample {
    let mut sample = Sample {
        seconds,
        operations,
        bytes: operations * 4096,
        client_cpu_s: Some(seconds / 2.0),
        ..Sample::default()
    };
    sample.latency.record_many(100_000, operations);
    sample
}

fn case(metric: Metric) -> CaseResult {
    CaseResult::new("iops", "p", "n", metric)
}

#[test]
fn ratio_is_median_of_pairs() {
    let slow_rounds = vec![sample(1.0, 1000), sample(1.0, 100), sample(1.0, 1000)];
    let fast_rounds = vec![sample(1.0, 2000), sample(1.0, 200), sample(1.0, 2000)];
    let mut result = case(Metric::OperationsPerSecond);
    result.sum_up("a", vec![("a".into(), slow_rounds.clone()), ("b".into(), fast_rounds)]);
    let ratio = result.of("b").and_then(|subject| subject.ratio).expect("a ratio");
    assert_eq!((ratio.median, ratio.low, ratio.high), (2.0, 2.0, 2.0));
    assert_eq!(
        result
            .of("a")
            .and_then(|subject| subject.calls.as_ref())
            .map(|calls| calls.histogram.count()),
        Some(2100)
    );

    let mut result = case(Metric::Seconds);
    result.sum_up(
        "a",
        vec![
            ("a".into(), slow_rounds),
            ("b".into(), vec![sample(4.0, 1), sample(4.0, 1), sample(4.0, 1)]),
        ],
    );
    assert_eq!(
        result.of("b").and_then(|subject| subject.ratio).map(|ratio| ratio.median),
        Some(0.25)
    );
}

#[test]
fn no_ratio_without_baseline_samples() {
    let rounds = || vec![sample(1.0, 1000), sample(1.0, 1000)];
    for (of_a, pairs) in
        [(Vec::new(), None), (vec![sample(1.0, 500)], Some(2.0)), (rounds(), Some(1.0))]
    {
        let mut result = case(Metric::OperationsPerSecond);
        result
            .sum_up("a", vec![("b".into(), rounds()), ("a".into(), of_a), ("c".into(), rounds())]);
        for label in ["b", "c"] {
            let subject = result.of(label).expect("the value was measured");
            assert_eq!(subject.ratio.map(|ratio| ratio.median), pairs, "{label}");
            assert!(subject.figure.is_some());
        }
        assert_eq!(
            result.of("a").and_then(|subject| subject.ratio).map(|ratio| ratio.median),
            pairs.map(|_| 1.0)
        );
    }
}

#[test]
fn other_durability_removes_ratio_with_note() {
    let rounds = || vec![sample(1.0, 1000); 6];
    let mut result = case(Metric::OperationsPerSecond);
    result.sum_up("a", ["a", "b", "c"].map(|label| (label.into(), rounds())).into());
    let note = result
        .remove_unlike_ratios(&[
            ("a".into(), None),
            ("b".into(), Some("in memory")),
            ("c".into(), None),
        ])
        .expect("the values differ");
    assert_eq!(
        result.subjects.iter().map(|subject| subject.ratio.is_some()).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert!(note.contains("b: in memory") && note.contains("for a (on stable storage)"), "{note}");
    assert_eq!(
        result.remove_unlike_ratios(&[
            ("a".into(), Some("x")),
            ("b".into(), Some("x")),
            ("c".into(), Some("x"))
        ]),
        None
    );
}

#[test]
fn merged_runs_keep_baselines_and_unique_labels() {
    let part = |labels: &[&str], detail: &str| {
        let mut run = Run::begin("test".into(), true);
        let about = |label: &&str| SubjectInfo {
            label: (*label).into(),
            target: "x".into(),
            sec: None,
            details: vec![detail.into()],
        };
        run.subjects = labels.iter().map(about).collect();
        let mut result = case(Metric::OperationsPerSecond);
        result.sum_up(
            labels[0],
            labels.iter().map(|label| ((*label).to_owned(), vec![sample(1.0, 10)])).collect(),
        );
        run.results.push(result);
        run.notes.push("it is loud".into());
        run
    };
    let mut run = part(&["local", "replica"], "one").with_named_notes();
    let mut other = part(&["replica", "nginx"], "two");
    other.results.push(CaseResult::new("tree", "p", "n", Metric::Seconds));
    run.absorb(other.with_named_notes());
    assert_eq!(run.notes, ["iops: it is loud", "iops, tree: it is loud"]);
    run.results.pop();
    let labels: Vec<&str> = run.subjects.iter().map(|about| &about.label[..]).collect();
    assert_eq!(labels, ["local", "replica", "replica 2", "nginx"]);
    assert_eq!(run.baselines(&run.results), ["local", "replica 2"]);
    assert!(run.results[1].of("replica 2").is_some() && run.results[1].of("replica").is_none());
    run.absorb(part(&["local", "replica"], "one"));
    assert_eq!((run.subjects.len(), run.results.len()), (4, 3));
    assert!(run.results[2].of("replica").is_some());
}

#[test]
fn record_round_trips_and_other_version_is_refused() {
    let mut run = Run::begin("vouch bench".into(), true);
    let mut result = case(Metric::OperationsPerSecond);
    result.sum_up("a", vec![("a".into(), vec![sample(1.0, 10); 3])]);
    run.results.push(result);
    let text = run.to_json();
    assert_eq!(Run::from_json(&text, "x").expect("own JSON is valid"), run);
    assert!(Run::from_json(&text.replacen("\"version\":1", "\"version\":2", 1), "x").is_err());
    assert!(Run::from_json("{}", "x").is_err());
    let earlier = text.replace(",\"values\":3", "");
    assert!(!earlier.contains("values"));
    let read = Run::from_json(&earlier, "x").expect("own JSON is valid");
    assert_eq!(
        read.results[0].subjects[0].figure.map(|figure| (figure.values, figure.is_sure())),
        Some((3, false))
    );
}

#[test]
fn busy_client_is_limit_unless_all_due_calls_were_done() {
    let load = |rate| Load { rate, ..Load::READS };
    let limited = |rate, operations, part, crowds| {
        let mut busy = Sample { crowds, ..sample(1.0, operations) };
        busy.busy(part);
        let mut result =
            CaseResult { case: Some(Case::Load(load(rate))), ..case(Metric::OperationsPerSecond) };
        result.sum_up(
            "a",
            vec![(
                "a".into(),
                vec![busy, sample(1.0, operations), Sample { crowds, ..sample(1.0, operations) }],
            )],
        );
        let others = result.subjects[0].samples[0].others.clone();
        assert_eq!(others, [(BUSIEST.to_owned(), part)], "the measured share is reported");
        result.subjects[0].client_is_limit
    };
    assert!(
        limited(None, 1000, 0.99, false)
            && limited(None, 1000, 0.3, true)
            && !limited(None, 1000, 0.3, false)
    );
    assert!(
        !limited(Some(1000.0), 1000, 0.99, true)
            && limited(Some(1000.0), 900, 0.99, false)
            && limited(Some(1000.0), 900, 0.3, true)
    );
}

#[test]
fn open_loop_result_has_latency_intervals() {
    let load = Load { rate: Some(100.0), ..Load::READS };
    let round = |us: u64| {
        let mut sample = sample(1.0, 0);
        sample.operations = 100;
        sample.latency.record_many(us * 1000, 100);
        sample
    };
    let mut run = Run::begin("vouch bench".into(), true);
    let mut result =
        CaseResult { case: Some(Case::Load(load)), ..case(Metric::OperationsPerSecond) };
    result.sum_up(
        "a",
        vec![
            ("a".into(), [100, 120, 140].map(round).into()),
            ("b".into(), [200, 240, 280].map(round).into()),
        ],
    );
    let latency = result.of("b").and_then(|subject| subject.latency).expect("an open-loop load");
    let near = |interval: Option<Interval>, wanted: [f64; 3]| {
        let of = interval.expect("there are pairs");
        [of.low, of.median, of.high]
            .iter()
            .zip(wanted)
            .all(|(found, wanted)| (found / wanted - 1.0).abs() < 0.01)
    };
    assert!(
        near(Some(latency.p50.us), [200.0, 240.0, 280.0]) && near(latency.p50.ratio, [0.5; 3]),
        "{latency:?}"
    );
    assert!(near(latency.p99.added_us, [100.0, 120.0, 140.0]), "{latency:?}");
    assert_eq!(
        result.of("b").and_then(|subject| subject.ratio).map(|ratio| ratio.median),
        Some(1.0)
    );
    run.results.push(result.clone());
    run.subjects = ["a", "b"]
        .map(|label| SubjectInfo {
            label: label.into(),
            target: "x".into(),
            sec: None,
            details: Vec::new(),
        })
        .into();
    let mut earlier: serde_json::Value =
        serde_json::from_str(&run.to_json()).expect("own JSON is valid");
    for subject in earlier["results"][0]["subjects"].as_array_mut().expect("two") {
        subject.as_object_mut().expect("an object").remove("latency");
    }
    assert_eq!(
        Run::from_json(&earlier.to_string(), "x").expect("reading succeeds").results[0].of("b"),
        run.results[0].of("b")
    );
    result.remove_unlike_ratios(&[("a".into(), None), ("b".into(), Some("in memory"))]);
    let latency = result.of("b").and_then(|subject| subject.latency).expect("an open-loop load");
    assert_eq!((latency.p50.ratio, latency.p99.added_us), (None, None));
    let mut result = case(Metric::OperationsPerSecond);
    result.sum_up("a", vec![("a".into(), vec![round(100)])]);
    assert_eq!(result.subjects[0].latency, None);
}

#[test]
fn record_text_is_escaped() {
    let mut run = Run::begin("vouch\u{1b}]0;mine\u{7} bench".into(), true);
    let mut result =
        CaseResult::new("iops", "p\u{1b}[2J", "n\nnote: all is well", Metric::OperationsPerSecond);
    result.sum_up("a\u{202e}", vec![("a\u{202e}".into(), vec![sample(1.0, 10); 6])]);
    run.results.push(result);
    run.notes.push("b\u{9b}31m".into());
    let harmless =
        |text: &str| !text.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}'));
    assert!(harmless(&crate::report::table(&run)) && harmless(&crate::report::compare(&run, &run)));
    let read = Run::from_json(&run.to_json(), "x").expect("own JSON is valid");
    assert!(
        !crate::report::table(&read).contains("\nnote: all is well")
            && read.results[0].of("a\\xe2\\x80\\xae").is_some()
    );
}
