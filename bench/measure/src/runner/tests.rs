use std::sync::{Arc, Mutex};

use super::*;
use crate::subject::SubjectInfo;

struct Silent;

impl ProgressSink for Silent {
    fn update(&mut self, _: f64, _: f64, _: &str) {}
}

struct Fake {
    label: &'static str,
    rates: Vec<u64>,
    log: Arc<Mutex<Vec<&'static str>>>,
    cleaned: Arc<Mutex<usize>>,
    stop_at: Option<(usize, StopFlag)>,
    count: usize,
    fails: Option<&'static str>,
    hangs: bool,
}

impl Fake {
    fn new(label: &'static str) -> Self {
        let (log, cleaned) = (Arc::default(), Arc::default());
        Fake {
            label,
            rates: vec![10],
            log,
            cleaned,
            stop_at: None,
            count: 0,
            fails: None,
            hangs: false,
        }
    }
}

fn start(subjects: Vec<Box<dyn Subject>>, rounds: Rounds, stop: &StopFlag) -> Runner {
    Runner::new(Run::begin("test".into(), false), subjects, rounds, Box::new(Silent), stop.clone())
}

fn planned(name: &str) -> PlannedCase {
    PlannedCase::new("iops", "p", name, Case::Getattr { depth: 1, seconds: 1.0 })
}

impl Subject for Fake {
    fn info(&self) -> SubjectInfo {
        SubjectInfo {
            label: self.label.into(),
            target: "fake".into(),
            sec: None,
            details: Vec::new(),
        }
    }

    fn unsupported(&self, _: &Case) -> Option<String> {
        None
    }

    fn prepare(&mut self, _: &Case) -> Result<(), Error> {
        Ok(())
    }

    fn measure(&mut self, _: &Case) -> Result<Sample, Error> {
        self.log.lock().expect("no thread panicked with the lock held").push(self.label);
        let operations = self.rates[self.count % self.rates.len()];
        self.count += 1;
        if let Some((at, stop)) = &self.stop_at
            && *at == self.count
        {
            stop.set();
            return Err(self
                .fails
                .map_or(Error::Interrupted, |why| Error::Unreachable(why.into())));
        }
        if let (None, Some(why)) = (&self.stop_at, self.fails) {
            return Err(Error::Unreachable(why.into()));
        }
        Ok(Sample { seconds: 1.0, operations, elsewhere: Some(0.5), ..Sample::default() })
    }

    fn tidy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn place(&self) -> Option<String> {
        Some(format!("the place of {}", self.label))
    }

    fn clean(&mut self) -> Result<(), Error> {
        if self.hangs {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        *self.cleaned.lock().expect("no thread panicked with the lock held") += 1;
        Ok(())
    }
}

fn runner(
    rates: [Vec<u64>; 2],
    stop_at: Option<usize>,
    rounds: Rounds,
) -> (Run, Vec<&'static str>, usize) {
    let (log, cleaned, stop) =
        (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)), StopFlag::default());
    let subjects = ["a", "b"].into_iter().zip(rates).map(|(label, rates)| {
        let stop_at = stop_at.filter(|_| label == "b").map(|at| (at, stop.clone()));
        Box::new(Fake {
            rates,
            log: log.clone(),
            cleaned: cleaned.clone(),
            stop_at,
            ..Fake::new(label)
        }) as Box<dyn Subject>
    });
    let mut runner = start(subjects.collect(), rounds, &stop);
    let outcome = runner.run_all(&[planned("n")]);
    let run = runner.finish(&outcome);
    let log = log.lock().expect("no thread panicked with the lock held").clone();
    let cleaned = *cleaned.lock().expect("no thread panicked with the lock held");
    (run, log, cleaned)
}

/// Sums of seconds, done and expected, at each finished case.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<(f64, f64)>>>);

impl ProgressSink for Reports {
    fn update(&mut self, _: f64, _: f64, _: &str) {}

    fn finished(&mut self, done_s: f64, total_s: f64, _: &Run) {
        self.0.lock().expect("no thread panicked with the lock held").push((done_s, total_s));
    }
}

#[test]
fn estimate_of_iops_counts_rates_of_slow_subjects() {
    let (rounds, reports) =
        (Rounds { min: 3, max: 3, spread_max: 0.0, warm_up: false }, Reports::default());
    let subjects = [("fast", 1000), ("slow", 100)].map(|(label, rate)| {
        Box::new(Fake { rates: vec![rate], ..Fake::new(label) }) as Box<dyn Subject>
    });
    let mut runner = Runner::new(
        Run::begin("test".into(), false),
        subjects.into(),
        rounds,
        Box::new(reports.clone()),
        StopFlag::default(),
    );
    let options = crate::workload::Iops { steps: 2, seconds: 1.0, ..crate::workload::Iops::full() };
    crate::workload::iops(&mut runner, &options).expect("no call fails");
    let reports = reports.0.lock().expect("no thread panicked with the lock held").clone();
    let end = reports.last().expect("cases").0;
    // Rates: 1000, 500, and 100, 75, 50 and 25 of the slow subject, which is left out above them.
    assert_eq!(reports.len(), 8 * 7);
    for (done, total) in &reports[1..] {
        assert!(
            (end - done) * 0.9 <= total - done && total - done <= (end - done) * 1.3 + 8.0,
            "{done} of {total}, in the end {end}"
        );
    }
}

#[test]
fn subjects_take_turns_until_interval_is_narrow() {
    let rounds = Rounds { min: 3, max: 10, spread_max: 0.02, warm_up: true };
    let (run, log, cleaned) = runner([vec![1000], vec![500]], None, rounds);
    assert_eq!(log, ["a", "b", "b", "a"].repeat(2));
    assert_eq!(cleaned, 2);
    let result = &run.results[0];
    assert_eq!(
        result.of("b").and_then(|subject| subject.ratio).map(|ratio| ratio.median),
        Some(0.5)
    );
    assert_eq!(result.of("a").map(|subject| subject.samples.len()), Some(3));
}

#[test]
fn case_without_baseline_has_no_ratio() {
    let rounds = Rounds { min: 3, max: 3, spread_max: 0.02, warm_up: false };
    let subjects =
        ["a", "b", "c"].map(|label| Box::new(Fake::new(label)) as Box<dyn Subject>).into();
    let mut runner = start(subjects, rounds, &StopFlag::default());
    runner.run_case(&planned("n"), &mut |label| label != "a").expect("no call fails");
    let result = &runner.run.results[0];
    assert_eq!(
        result
            .subjects
            .iter()
            .map(|subject| (&subject.label[..], subject.ratio))
            .collect::<Vec<_>>(),
        [("b", None), ("c", None)]
    );
    let table = crate::report::table(&runner.run);
    assert!(!table.contains("1.00"), "{table}");
    let csv = crate::report::csv(&runner.run);
    assert!(csv.lines().skip(1).all(|line| line.ends_with(',')), "{csv}");
}

#[test]
fn run_without_lost_subject_goes_on_as_incomplete() {
    let rounds = Rounds { min: 3, max: 3, spread_max: 0.02, warm_up: false };
    let fake = |label, fails| Box::new(Fake { fails, ..Fake::new(label) }) as Box<dyn Subject>;
    for (fails, incomplete) in [(None, false), (Some("it is gone"), true)] {
        let subjects = vec![fake("a", None), fake("b", fails)];
        let mut runner = start(subjects, rounds, &StopFlag::default());
        let outcome = runner.run_all(&[planned("n")]);
        assert!(outcome.is_ok());
        let run = runner.finish(&outcome);
        assert_eq!(
            (run.incomplete, run.results[0].of("a").map(|subject| subject.samples.len())),
            (incomplete, Some(3))
        );
        assert_eq!(crate::report::table(&run).contains("incomplete"), incomplete);
        let mut whole = Run::begin("test".into(), false);
        whole.absorb(Run::from_json(&run.to_json(), "run").expect("own JSON is valid"));
        assert_eq!(whole.incomplete, incomplete);
    }
}

#[test]
fn open_loop_case_ends_by_latency() {
    let rounds = Rounds { min: 6, max: 10, spread_max: 0.02, warm_up: false };
    let load = |rate| Case::Load(crate::case::Load { depth: 1, rate, ..crate::case::Load::READS });
    let samples = [100, 150, 100, 150, 100, 150].map(|us: u64| {
        let mut sample = Sample { seconds: 1.0, operations: 1000, ..Sample::default() };
        sample.latency.record_many(us * 1000, 1000);
        sample
    });
    assert!(!rounds.are_precise(&samples, Metric::OperationsPerSecond, Some(&load(Some(1000.0)))));
    assert!(rounds.are_precise(&samples, Metric::OperationsPerSecond, Some(&load(None))));
}

#[test]
fn unsteady_figures_take_all_rounds_and_are_noted() {
    let rounds = Rounds { min: 3, max: 6, spread_max: 0.02, warm_up: false };
    let (run, log, _) = runner([vec![1000, 10, 400], vec![500]], None, rounds);
    assert_eq!(log.len(), 12);
    assert!(run.notes.iter().any(|note| note.contains("uncertain")), "{:?}", run.notes);
    assert!(run.notes.iter().any(|note| note.starts_with("noisy machine")), "{:?}", run.notes);
}

#[test]
fn interrupted_run_keeps_results_and_cleans_up() {
    let rounds = Rounds { min: 3, max: 6, spread_max: 0.0, warm_up: false };
    let (run, _, cleaned) = runner([vec![1000, 1001], vec![500, 501]], Some(3), rounds);
    assert!(run.interrupted);
    assert_eq!(cleaned, 2);
    assert_eq!(run.results[0].of("b").map(|subject| subject.samples.len()), Some(2));
}

#[test]
fn stopped_run_names_what_hanging_subject_leaves() {
    let (stop, cleaned) = (StopFlag::default(), Arc::new(Mutex::new(0)));
    let fake = |label, hangs: bool| {
        let (stop_at, fails) =
            (hangs.then(|| (1, stop.clone())), hangs.then_some("ssh ended by a signal"));
        Fake { cleaned: cleaned.clone(), stop_at, fails, hangs, ..Fake::new(label) }
    };
    let subjects: Vec<Box<dyn Subject>> =
        vec![Box::new(fake("a", true)), Box::new(fake("b", false))];
    let rounds = Rounds { min: 1, max: 1, spread_max: 0.0, warm_up: false };
    let mut runner = start(subjects, rounds, &stop);
    let outcome = runner.run_all(&[planned("n")]);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    let run = runner.finish(&outcome);
    assert!(run.interrupted && run.left_out.is_empty(), "{:?}", run.left_out);
    assert!(
        run.notes.iter().any(|note| note.contains("left behind: the place of a")),
        "{:?}",
        run.notes
    );
    assert_eq!(
        *cleaned.lock().expect("no thread panicked with the lock held"),
        1,
        "the other subject is cleaned"
    );
}

#[test]
fn resumed_run_measures_only_missing_cases() {
    let rounds = Rounds { min: 3, max: 3, spread_max: 0.02, warm_up: false };
    let plan = ["first", "second"].map(planned);
    let new_runner = |stop_at: Option<usize>| {
        let (log, cleaned, stop) =
            (Arc::new(Mutex::new(Vec::new())), Arc::default(), StopFlag::default());
        let fake = |label: &'static str| {
            let stop_at = stop_at.filter(|_| label == "b").map(|at| (at, stop.clone()));
            let (log, cleaned) = (Arc::clone(&log), Arc::clone(&cleaned));
            Box::new(Fake { log, cleaned, stop_at, ..Fake::new(label) }) as Box<dyn Subject>
        };
        let subjects = ["a", "b"].map(fake).into();
        (start(subjects, rounds, &stop), log)
    };
    let (mut interrupted, _) = new_runner(Some(5));
    assert!(matches!(interrupted.run_all(&plan), Err(Error::Interrupted)));
    let (mut resumed, log) = new_runner(None);
    resumed.earlier =
        Run::from_json(&interrupted.run.to_json(), "run").expect("own JSON is valid").results;
    resumed.run_all(&plan).expect("no call fails");
    assert_eq!(
        log.lock().expect("no thread panicked with the lock held").len(),
        6,
        "one case on two subjects, three rounds"
    );
    assert_eq!(
        resumed.run.results.iter().map(|result| &result.name[..]).collect::<Vec<_>>(),
        ["first", "second"]
    );
    assert_eq!(resumed.run.results[0], interrupted.run.results[0]);
}
