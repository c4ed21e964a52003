//! Measures cases on all subjects in turn: A B A B …, after a warm-up, until the interval is tight or the rounds are over. What disturbs
//! the machine disturbs both halves of a pair.

use std::time::Instant;

use crate::case::Metric;
use crate::record::{CaseResult, Run, SubjectResult};
use crate::statistics::{Interval, median};
use crate::{Case, Error, Sample, Stop, Subject};

/// How often, and when it is enough.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// At least.
    pub least: usize,
    /// At most.
    pub most: usize,
    /// It is enough when half of the interval is this part of the median for every subject.
    pub tight: f64,
    /// Whether each subject is measured once before it counts.
    pub warm_up: bool,
}

impl Rounds {
    /// As a run is done that is to be believed.
    pub const FULL: Self = Self { least: crate::statistics::SURE, most: 10, tight: 0.02, warm_up: true };
    /// A first look.
    pub const QUICK: Self = Self { least: 3, most: 3, tight: 0.05, warm_up: true };

    /// Whether these are enough of one subject.
    pub(crate) fn are_tight(&self, samples: &[Sample], metric: Metric) -> bool {
        let figures: Vec<f64> = samples.iter().map(|sample| sample.figure(metric)).collect();
        Interval::of(&figures).is_none_or(|interval| interval.spread() <= self.tight)
    }
}

/// Sees how far the run is.
pub trait Watcher: Send {
    /// `done` of about `total` seconds of measuring; what is measured now.
    fn now(&mut self, done_s: f64, total_s: f64, what: &str);
}

/// A run that is under way.
pub struct Bench {
    /// What is measured.
    pub subjects: Vec<Box<dyn Subject>>,
    /// How often.
    pub rounds: Rounds,
    /// Somebody who wants to stop.
    pub stop: Stop,
    /// What has been measured.
    pub run: Run,
    watcher: Box<dyn Watcher>,
    started: Instant,
    done_s: f64,
    total_s: f64,
    /// Subjects that failed for good.
    failed: Vec<String>,
    /// How much of the machine others used, measurement by measurement.
    elsewhere: Vec<f64>,
}

/// A case and its place in the report.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The command.
    pub workload: &'static str,
    /// The panel.
    pub panel: String,
    /// The name within it.
    pub name: String,
    /// The place on its axis.
    pub x: Option<f64>,
    /// The case.
    pub case: Case,
    /// What its figure is.
    pub metric: Metric,
}

impl Planned {
    /// With the case's own metric.
    pub fn new(workload: &'static str, panel: impl Into<String>, name: impl Into<String>, case: Case) -> Self {
        Self { workload, panel: panel.into(), name: name.into(), x: None, metric: case.metric(), case }
    }

    /// At this place of the panel's axis.
    pub fn at(self, x: f64) -> Self {
        Self { x: Some(x), ..self }
    }
}

impl Bench {
    /// A run of these subjects; the first is the baseline.
    pub fn new(run: Run, subjects: Vec<Box<dyn Subject>>, rounds: Rounds, watcher: Box<dyn Watcher>, stop: Stop) -> Self {
        let run = Run { subjects: subjects.iter().map(|subject| subject.about()).collect(), ..run };
        let (failed, elsewhere) = (Vec::new(), Vec::new());
        Self { subjects, rounds, stop, run, watcher, started: Instant::now(), done_s: 0.0, total_s: 0.0, failed, elsewhere }
    }

    /// Expects these cases: for the time that is left.
    pub fn expect<'a>(&mut self, cases: impl IntoIterator<Item = &'a Case>) {
        let passes = (self.rounds.most + usize::from(self.rounds.warm_up)) as f64;
        for case in cases {
            let able = self.subjects.iter().filter(|subject| subject.lacks(case).is_none()).count();
            self.total_s += case.about_s() * passes * able as f64;
        }
    }

    /// Measures all of a plan.
    pub fn all(&mut self, plan: &[Planned]) -> Result<(), Error> {
        self.expect(plan.iter().map(|planned| &planned.case));
        let mut panel = None;
        for planned in plan {
            if panel.is_some_and(|panel| panel != &planned.panel) {
                self.tidy();
            }
            panel = Some(&planned.panel);
            self.case(planned, &mut |_| true)?;
        }
        self.tidy();
        Ok(())
    }

    /// Measures a case on the subjects that are `wanted`; what came of it is the last result.
    pub fn case(&mut self, planned: &Planned, wanted: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
        let labels: Vec<String> = self.subjects.iter().map(|subject| subject.about().label).collect();
        let mut samples: Vec<(String, Vec<Sample>)> = labels.iter().map(|label| (label.clone(), Vec::new())).collect();
        let mut able: Vec<usize> = Vec::new();
        for (at, label) in labels.iter().enumerate() {
            if self.failed.contains(label) || !wanted(label) {
                continue;
            }
            match self.subjects[at].lacks(&planned.case) {
                None => able.push(at),
                Some(why) => self.leave_out(format!("{label}: {}: {why}", planned.workload)),
            }
        }
        let expected = self.total_s.max(self.done_s + 1e-9);
        let share = planned.case.about_s();
        let passes = self.rounds.most + usize::from(self.rounds.warm_up);
        let before = self.done_s;
        let mut outcome = Ok(());
        'rounds: for pass in 0..passes {
            let warm_up = self.rounds.warm_up && pass == 0;
            for &at in &able.clone() {
                if self.stop.asked() {
                    outcome = Err(Error::Interrupted);
                    break 'rounds;
                }
                self.watcher.now(self.done_s, expected, &format!("{}: {}, {}", planned.panel, planned.name, labels[at]));
                let subject = &mut self.subjects[at];
                let measured =
                    if pass == 0 { subject.prepare(&planned.case) } else { Ok(()) }.and_then(|()| subject.measure(&planned.case));
                self.done_s += share;
                match measured {
                    Ok(sample) => {
                        self.elsewhere.extend(sample.elsewhere);
                        if !warm_up {
                            samples[at].1.push(sample);
                        }
                    }
                    Err(error @ (Error::Interrupted | Error::Corrupt(_))) => {
                        outcome = Err(error);
                        break 'rounds;
                    }
                    Err(error) => {
                        self.leave_out(format!("{}: {}, {}: {}", labels[at], planned.panel, planned.name, error.with_cure()));
                        able.retain(|other| *other != at);
                        if matches!(error, Error::Unreachable(_)) {
                            self.failed.push(labels[at].clone());
                        }
                    }
                }
            }
            let counted = pass + usize::from(!self.rounds.warm_up);
            let tight = samples.iter().all(|(_, samples)| self.rounds.are_tight(samples, planned.metric));
            if able.is_empty() || counted >= self.rounds.least && tight {
                break;
            }
        }
        // What was saved by stopping early, or is left of those that failed, is no longer to be waited for.
        self.done_s = before + share * (passes * labels.len().min(able.len().max(1))) as f64;
        let Planned { workload, panel, name, x, metric, case } = planned.clone();
        let mut result = CaseResult { x, case: Some(case), ..CaseResult::new(workload, panel, name, metric) };
        result.sum_up(self.run.baseline(), samples);
        let stored: Vec<(String, Option<&'static str>)> =
            self.subjects.iter().map(|subject| (subject.about().label, subject.stored(&planned.case))).collect();
        let apart = result.part(&stored);
        if let Some(why) = apart
            && !self.run.notes.contains(&why)
        {
            self.run.notes.push(why);
        }
        if !result.subjects.is_empty() {
            self.run.results.push(result);
        }
        outcome
    }

    /// Shows how far a part of the run is that has no cases of the common kind.
    pub(crate) fn show(&mut self, part: f64, what: &str) {
        let elapsed = self.started.elapsed().as_secs_f64();
        self.watcher.now(elapsed, if part > 0.0 { elapsed / part } else { elapsed + 60.0 }, what);
    }

    /// Removes what later cases don't need. What can't be removed now is tried again at the end.
    pub fn tidy(&mut self) {
        for subject in &mut self.subjects {
            if let Err(error) = subject.tidy() {
                self.run.notes.push(format!("{}: {error}", subject.about().label));
            }
        }
    }

    /// Says what was not measured, once.
    pub fn leave_out(&mut self, why: String) {
        if !self.run.left_out.contains(&why) {
            self.run.left_out.push(why);
        }
    }

    /// Ends the run: removes everything, and says what a reader should know.
    pub fn finish(mut self, outcome: &Result<(), Error>) -> Run {
        self.run.interrupted = matches!(outcome, Err(Error::Interrupted));
        if let Err(error) = outcome
            && !self.run.interrupted
        {
            self.run.notes.push(format!("ended early: {error}"));
        }
        self.run.seconds = self.started.elapsed().as_secs_f64();
        self.judge();
        self.watcher.now(self.total_s, self.total_s, "removing what was made");
        for subject in &mut self.subjects {
            let label = subject.about().label;
            if let Err(error) = subject.clean() {
                self.run.notes.push(format!("{label}: what was made could not be removed: {error}"));
            }
        }
        self.run
    }

    fn judge(&mut self) {
        let loud = self.elsewhere.iter().filter(|part| **part > NOISY).count();
        if loud * 5 > self.elsewhere.len() {
            self.run.notes.push(format!(
                "noisy machine: in {loud} of {} measurements others used more than {:.0}% of it (median {:.0}%); believe the ratios, which are of pairs, \
                 more than the figures",
                self.elsewhere.len(),
                NOISY * 100.0,
                median(&self.elsewhere) * 100.0,
            ));
        }
        let all = || self.run.results.iter().flat_map(|result| result.subjects.iter().map(move |subject| (result, subject)));
        let (wide, intervals) = all().fold((0, 0), |(wide, count), (_, subject)| {
            let is_wide = subject.figure.is_some_and(|figure| figure.spread() > WIDE);
            (wide + usize::from(is_wide), count + 1)
        });
        let mut notes = Vec::new();
        if wide * 5 > intervals {
            notes.push(format!(
                "{wide} of {intervals} figures are uncertain by more than {:.0}%: a quieter machine, or more rounds",
                WIDE * 100.0
            ));
        }
        let limited: Vec<String> = all()
            .filter(|(_, subject)| subject.client_is_limit)
            .map(|(result, subject)| format!("{} ({}, {})", subject.label, result.panel, result.name))
            .collect();
        if !limited.is_empty() {
            notes.push(format!(
                "the client was the limit, and the server may do more: the load generator's busiest thread had no more to give, or the machine that it shares \
                 with the server had nothing left and the client took most of it: {}",
                limited.join("; ")
            ));
        }
        for (count, what) in [
            (refused as fn(&SubjectResult) -> u64, "were refused"),
            (
                SubjectResult::unanswered,
                "had no answer, though the connection stood; under Kerberos a server may drop calls beyond its window (RFC 2203), and NFS-Ganesha's is 32: \
                 their lanes were idle from then on, so with a smaller --depth there are fewer",
            ),
            (
                SubjectResult::unsent,
                "were due and never sent, because no earlier one came back: more was asked than was done; they are in the latencies with the time that they \
                 had waited",
            ),
        ] {
            let those: Vec<String> = all()
                .filter(|(_, subject)| count(subject) > 0)
                .map(|(result, subject)| format!("{} {} ({}, {})", count(subject), subject.label, result.panel, result.name))
                .collect();
            if !those.is_empty() {
                let sum: u64 = all().map(|(_, subject)| count(subject)).sum();
                notes.push(format!("{sum} calls {what}: {}", those.join("; ")));
            }
        }
        let fewer: Vec<String> = all()
            .filter_map(|(result, subject)| Some(format!("{} {} ({}, {})", subject.in_flight()?, subject.label, result.panel, result.name)))
            .collect();
        if !fewer.is_empty() {
            notes.push(format!(
                "fewer calls were in flight than the case says, because the server gives no more slots or its window under Kerberos takes no more; \
                 latencies are shorter and rates lower for that alone: {}",
                fewer.join("; ")
            ));
        }
        self.run.notes.extend(notes);
    }
}

fn refused(subject: &SubjectResult) -> u64 {
    subject.errors - subject.unanswered().min(subject.errors)
}

/// A part of the machine that others may use before a run says so.
const NOISY: f64 = 0.10;
/// A figure is uncertain from here on.
const WIDE: f64 = 0.10;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::subject::About;

    struct Silent;

    impl Watcher for Silent {
        fn now(&mut self, _: f64, _: f64, _: &str) {}
    }

    struct Fake {
        label: &'static str,
        rates: Vec<u64>,
        log: Arc<Mutex<Vec<&'static str>>>,
        cleaned: Arc<Mutex<usize>>,
        stop_at: Option<(usize, Stop)>,
        count: usize,
    }

    impl Subject for Fake {
        fn about(&self) -> About {
            About { label: self.label.into(), target: "fake".into(), sec: None, details: Vec::new() }
        }

        fn lacks(&self, _: &Case) -> Option<String> {
            None
        }

        fn prepare(&mut self, _: &Case) -> Result<(), Error> {
            Ok(())
        }

        fn measure(&mut self, _: &Case) -> Result<Sample, Error> {
            self.log.lock().expect("no test fails with it").push(self.label);
            let operations = self.rates[self.count % self.rates.len()];
            self.count += 1;
            if let Some((at, stop)) = &self.stop_at
                && *at == self.count
            {
                stop.ask();
                return Err(Error::Interrupted);
            }
            Ok(Sample { seconds: 1.0, operations, elsewhere: Some(0.5), ..Sample::default() })
        }

        fn tidy(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn clean(&mut self) -> Result<(), Error> {
            *self.cleaned.lock().expect("no test fails with it") += 1;
            Ok(())
        }
    }

    fn bench(rates: [Vec<u64>; 2], stop_at: Option<usize>, rounds: Rounds) -> (Run, Vec<&'static str>, usize) {
        let (log, cleaned, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)), Stop::default());
        let subjects = ["a", "b"].into_iter().zip(rates).map(|(label, rates)| {
            let stop_at = stop_at.filter(|_| label == "b").map(|at| (at, stop.clone()));
            Box::new(Fake { label, rates, log: log.clone(), cleaned: cleaned.clone(), stop_at, count: 0 }) as Box<dyn Subject>
        });
        let run = Run::begin("test".into(), false);
        let mut bench = Bench::new(run, subjects.collect(), rounds, Box::new(Silent), stop.clone());
        let outcome = bench.all(&[Planned::new("iops", "p", "n", Case::Getattr { depth: 1, seconds: 1.0 })]);
        let run = bench.finish(&outcome);
        let log = log.lock().expect("no test fails with it").clone();
        let cleaned = *cleaned.lock().expect("no test fails with it");
        (run, log, cleaned)
    }

    #[test]
    fn subjects_take_turns_and_a_tight_interval_ends_it_early() {
        let rounds = Rounds { least: 3, most: 10, tight: 0.02, warm_up: true };
        let (run, log, cleaned) = bench([vec![1000], vec![500]], None, rounds);
        assert_eq!(log, ["a", "b"].repeat(4));
        assert_eq!(cleaned, 2);
        let result = &run.results[0];
        assert_eq!(result.of("b").and_then(|subject| subject.ratio).map(|ratio| ratio.median), Some(0.5));
        assert_eq!(result.of("a").map(|subject| subject.samples.len()), Some(3));
    }

    #[test]
    fn a_case_without_the_baseline_has_no_ratio() {
        let rounds = Rounds { least: 3, most: 3, tight: 0.02, warm_up: false };
        let fake = |label| {
            let (log, cleaned) = (Arc::default(), Arc::default());
            Box::new(Fake { label, rates: vec![10], log, cleaned, stop_at: None, count: 0 }) as Box<dyn Subject>
        };
        let subjects = ["a", "b", "c"].map(fake).into();
        let mut bench = Bench::new(Run::begin("test".into(), false), subjects, rounds, Box::new(Silent), Stop::default());
        let planned = Planned::new("iops", "p", "n", Case::Getattr { depth: 1, seconds: 1.0 });
        bench.case(&planned, &mut |label| label != "a").expect("nothing fails");
        let result = &bench.run.results[0];
        assert_eq!(
            result.subjects.iter().map(|subject| (&subject.label[..], subject.ratio)).collect::<Vec<_>>(),
            [("b", None), ("c", None)]
        );
        let table = crate::report::table(&bench.run);
        assert!(!table.contains("1.00"), "{table}");
        let csv = crate::report::csv(&bench.run);
        assert!(csv.lines().skip(1).all(|line| line.ends_with(',')), "{csv}");
    }

    #[test]
    fn unsteady_figures_are_measured_to_the_last_round_and_named() {
        let rounds = Rounds { least: 3, most: 6, tight: 0.02, warm_up: false };
        let (run, log, _) = bench([vec![1000, 10, 400], vec![500]], None, rounds);
        assert_eq!(log.len(), 12);
        assert!(run.notes.iter().any(|note| note.contains("uncertain")), "{:?}", run.notes);
        assert!(run.notes.iter().any(|note| note.starts_with("noisy machine")), "{:?}", run.notes);
    }

    #[test]
    fn an_interrupted_run_keeps_what_it_has_and_cleans_up() {
        let rounds = Rounds { least: 3, most: 6, tight: 0.0, warm_up: false };
        let (run, _, cleaned) = bench([vec![1000, 1001], vec![500, 501]], Some(3), rounds);
        assert!(run.interrupted);
        assert_eq!(cleaned, 2);
        assert_eq!(run.results[0].of("b").map(|subject| subject.samples.len()), Some(2));
    }
}
