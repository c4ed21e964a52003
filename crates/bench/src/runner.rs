//! Measures cases on all subjects in turn: A B A B …, after a warm-up, until the interval is tight
//! or the rounds are over. What disturbs the machine disturbs both halves of a pair.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::case::Metric;
use crate::record::{CaseResult, Run, SubjectResult};
use crate::sample::Quantiles;
use crate::statistics::{Interval, median};
use crate::{Case, Error, Sample, StopFlag, Subject};

/// How often, and when it is enough.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// At least.
    pub least: usize,
    /// At most.
    pub most: usize,
    /// It is enough when half of the interval is this part of the median for every subject: of the
    /// figure, or, where calls are due at a rate, of the median latency.
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
    pub(crate) fn are_precise(&self, samples: &[Sample], metric: Metric, case: Option<&Case>) -> bool {
        let of_a_step = matches!(case, Some(Case::Load(load)) if load.rate.is_some());
        let figure = |sample: &Sample| match Quantiles::of(&sample.latency).filter(|_| of_a_step) {
            // How much it does is what was asked for.
            Some(calls) => calls.p50_us,
            None => sample.figure(metric),
        };
        let figures: Vec<f64> = samples.iter().map(figure).collect();
        Interval::of(&figures).is_none_or(|interval| interval.spread() <= self.tight)
    }
}

/// Sees how far the run is.
pub trait ProgressSink: Send {
    /// `done` of about `total` seconds of measuring; what is measured now.
    fn now(&mut self, done_s: f64, total_s: f64, what: &str);
}

/// A run that is under way.
pub struct Runner {
    /// What is measured.
    pub subjects: Vec<Box<dyn Subject>>,
    /// How often.
    pub rounds: Rounds,
    /// Somebody who wants to stop.
    pub stop: StopFlag,
    /// What has been measured.
    pub run: Run,
    watcher: Box<dyn ProgressSink>,
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
pub struct PlannedCase {
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

impl PlannedCase {
    /// With the case's own metric.
    pub fn new(workload: &'static str, panel: impl Into<String>, name: impl Into<String>, case: Case) -> Self {
        Self { workload, panel: panel.into(), name: name.into(), x: None, metric: case.metric(), case }
    }

    /// At this place of the panel's axis.
    pub fn at(self, x: f64) -> Self {
        Self { x: Some(x), ..self }
    }
}

impl Runner {
    /// A run of these subjects; the first is the baseline.
    pub fn new(run: Run, subjects: Vec<Box<dyn Subject>>, rounds: Rounds, watcher: Box<dyn ProgressSink>, stop: StopFlag) -> Self {
        let run = Run { subjects: subjects.iter().map(|subject| subject.info()).collect(), ..run };
        let (failed, elsewhere) = (Vec::new(), Vec::new());
        Self { subjects, rounds, stop, run, watcher, started: Instant::now(), done_s: 0.0, total_s: 0.0, failed, elsewhere }
    }

    /// Expects these cases: for the time that is left.
    pub fn expect<'a>(&mut self, cases: impl IntoIterator<Item = &'a Case>) {
        let passes = (self.rounds.most + usize::from(self.rounds.warm_up)) as f64;
        for case in cases {
            let able = self.subjects.iter().filter(|subject| subject.unsupported(case).is_none()).count();
            self.total_s += case.about_s() * passes * able as f64;
        }
    }

    /// Measures all of a plan.
    pub fn run_all(&mut self, plan: &[PlannedCase]) -> Result<(), Error> {
        self.expect(plan.iter().map(|planned| &planned.case));
        let mut panel = None;
        for planned in plan {
            if panel.is_some_and(|panel| panel != &planned.panel) {
                self.tidy();
            }
            panel = Some(&planned.panel);
            self.run_case(planned, &mut |_| true)?;
        }
        self.tidy();
        if self.stop.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Measures a case on the subjects that are `wanted`; what came of it is the last result.
    pub fn run_case(&mut self, planned: &PlannedCase, wanted: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
        let labels: Vec<String> = self.subjects.iter().map(|subject| subject.info().label).collect();
        let mut samples: Vec<(String, Vec<Sample>)> = labels.iter().map(|label| (label.clone(), Vec::new())).collect();
        let mut able: Vec<usize> = Vec::new();
        for (at, label) in labels.iter().enumerate() {
            if self.failed.contains(label) || !wanted(label) {
                continue;
            }
            match self.subjects[at].unsupported(&planned.case) {
                None => able.push(at),
                Some(why) => self.skip(format!("{label}: {}: {why}", planned.workload)),
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
                if self.stop.is_set() {
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
                    // Who is asked to stop fails in many ways, and so do those who work for it.
                    Err(_) if self.stop.is_set() => {
                        outcome = Err(Error::Interrupted);
                        break 'rounds;
                    }
                    Err(error @ (Error::Interrupted | Error::Corrupt(_))) => {
                        outcome = Err(error);
                        break 'rounds;
                    }
                    Err(error) => {
                        self.run.incomplete = true;
                        self.skip(format!("{}: {}, {}: {}", labels[at], planned.panel, planned.name, error.with_cure()));
                        able.retain(|other| *other != at);
                        if matches!(error, Error::Unreachable(_)) {
                            self.failed.push(labels[at].clone());
                        }
                    }
                }
            }
            let counted = pass + usize::from(!self.rounds.warm_up);
            let tight = samples.iter().all(|(_, samples)| self.rounds.are_precise(samples, planned.metric, Some(&planned.case)));
            if able.is_empty() || counted >= self.rounds.least && tight {
                break;
            }
        }
        // What was saved by stopping early, or is left of those that failed, is no longer to be waited for.
        self.done_s = before + share * (passes * labels.len().min(able.len().max(1))) as f64;
        let PlannedCase { workload, panel, name, x, metric, case } = planned.clone();
        let mut result = CaseResult { x, case: Some(case), ..CaseResult::new(workload, panel, name, metric) };
        result.sum_up(self.run.baseline(), samples);
        let stored: Vec<(String, Option<&'static str>)> =
            self.subjects.iter().map(|subject| (subject.info().label, subject.stored(&planned.case))).collect();
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
                self.run.notes.push(format!("{}: {error}", subject.info().label));
            }
        }
    }

    /// Says what was not measured, once.
    pub fn skip(&mut self, why: String) {
        if !self.run.left_out.contains(&why) {
            self.run.left_out.push(why);
        }
    }

    /// Ends the run: says what a reader should know, and removes everything.
    pub fn finish(mut self, outcome: &Result<(), Error>) -> Run {
        self.sum_up(outcome);
        self.clean();
        self.run
    }

    /// Says what a reader should know. From then on the run is told but for what could not be
    /// removed.
    pub fn sum_up(&mut self, outcome: &Result<(), Error>) {
        self.run.interrupted = matches!(outcome, Err(Error::Interrupted));
        if let Err(error) = outcome
            && !self.run.interrupted
        {
            self.run.notes.push(format!("ended early: {error}"));
        }
        self.run.seconds = self.started.elapsed().as_secs_f64();
        self.judge();
    }

    /// Removes everything; what is left behind is told in a note. Once somebody has asked to stop,
    /// it does not wait for ever.
    pub fn clean(&mut self) {
        self.watcher.now(self.total_s, self.total_s, "removing what was made");
        let mut asked = None;
        for mut subject in std::mem::take(&mut self.subjects) {
            let (label, place) = (subject.info().label, subject.place());
            let (sender, done) = mpsc::channel();
            // A server, a mount or an agent that hangs keeps this thread, not who waits for it.
            std::thread::spawn(move || {
                let outcome = subject.clean();
                sender.send((subject, outcome))
            });
            let outcome = loop {
                match done.recv_timeout(TICK) {
                    Ok((subject, outcome)) => {
                        // It lives on: others may need what it guards.
                        self.subjects.push(subject);
                        break outcome.map_err(|error| error.to_string());
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break Err("it failed".into()),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if self.stop.is_set() && asked.get_or_insert_with(Instant::now).elapsed() > CLEANED_WITHIN {
                            break Err(format!("not in {} s after the interruption", CLEANED_WITHIN.as_secs()));
                        }
                    }
                }
            };
            if let Err(why) = outcome {
                let left = place.map_or_else(String::new, |place| format!("; left behind: {place}"));
                self.run.notes.push(format!("{label}: what was made could not be removed: {why}{left}"));
            }
        }
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
            let is_wide = subject.latency.map(|latency| latency.p50.us).or(subject.figure).is_some_and(|told| told.spread() > WIDE);
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
                "fewer calls were in flight than the case says, because the server gives no more slots, its window under Kerberos takes no more, or the file that is written to has no more blocks (--file-size); \
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

/// How often is looked for who wants to stop.
const TICK: Duration = Duration::from_millis(50);
/// How long all of an interrupted run may be removed, together.
const CLEANED_WITHIN: Duration = Duration::from_secs(15);

/// A part of the machine that others may use before a run says so.
const NOISY: f64 = 0.10;
/// A figure is uncertain from here on.
const WIDE: f64 = 0.10;

#[cfg(test)]
mod tests;
