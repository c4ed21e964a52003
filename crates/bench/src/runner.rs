//! Measures each case on all subjects in turn (A B A B …), so that a disturbance of the machine
//! affects all of them.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::case::Metric;
use crate::record::{CaseResult, Run, SubjectResult};
use crate::sample::Quantiles;
use crate::statistics::{Interval, median};
use crate::{Case, Error, Sample, StopFlag, Subject};

/// Number of rounds and precision.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// Minimum.
    pub least: usize,
    /// Maximum.
    pub most: usize,
    /// A case ends early when half of each subject's interval is at most this share of its median.
    /// An open-loop case uses the median latency.
    pub tight: f64,
    /// Whether an extra first round is not counted.
    pub warm_up: bool,
}

impl Rounds {
    /// A full run.
    pub const FULL: Self = Self { least: crate::statistics::SURE, most: 10, tight: 0.02, warm_up: true };
    /// A quick run.
    pub const QUICK: Self = Self { least: 3, most: 3, tight: 0.05, warm_up: true };

    /// Whether the interval of one subject is narrow enough.
    pub(crate) fn are_precise(&self, samples: &[Sample], metric: Metric, case: Option<&Case>) -> bool {
        let of_a_step = matches!(case, Some(Case::Load(load)) if load.rate.is_some());
        let figure = |sample: &Sample| match Quantiles::of(&sample.latency).filter(|_| of_a_step) {
            // The rate of an open loop is given, so the latency is what varies.
            Some(calls) => calls.p50_us,
            None => sample.figure(metric),
        };
        let figures: Vec<f64> = samples.iter().map(figure).collect();
        Interval::of(&figures).is_none_or(|interval| interval.spread() <= self.tight)
    }
}

/// Receives the progress of a run.
pub trait ProgressSink: Send {
    /// `done_s` of about `total_s` seconds are measured. `what` is measured now.
    fn now(&mut self, done_s: f64, total_s: f64, what: &str);
}

/// A run in progress.
pub struct Runner {
    /// The subjects. The first is the baseline.
    pub subjects: Vec<Box<dyn Subject>>,
    /// Number of rounds.
    pub rounds: Rounds,
    /// Set to end the run early.
    pub stop: StopFlag,
    /// The results so far.
    pub run: Run,
    watcher: Box<dyn ProgressSink>,
    started: Instant,
    done_s: f64,
    total_s: f64,
    /// Labels of unreachable subjects.
    failed: Vec<String>,
    /// Share of the machine that other processes used, by measurement.
    elsewhere: Vec<f64>,
}

/// A case and its place in the report.
#[derive(Debug, Clone)]
pub struct PlannedCase {
    /// Subcommand of `vouch bench`.
    pub workload: &'static str,
    /// Panel of the report.
    pub panel: String,
    /// Name within the panel.
    pub name: String,
    /// Position on the panel's axis.
    pub x: Option<f64>,
    /// The case.
    pub case: Case,
    /// What is reported.
    pub metric: Metric,
}

impl PlannedCase {
    /// A case with its own metric.
    pub fn new(workload: &'static str, panel: impl Into<String>, name: impl Into<String>, case: Case) -> Self {
        Self { workload, panel: panel.into(), name: name.into(), x: None, metric: case.metric(), case }
    }

    /// Sets the position on the panel's axis.
    pub fn at(self, x: f64) -> Self {
        Self { x: Some(x), ..self }
    }
}

impl Runner {
    /// Starts a run.
    pub fn new(run: Run, subjects: Vec<Box<dyn Subject>>, rounds: Rounds, watcher: Box<dyn ProgressSink>, stop: StopFlag) -> Self {
        let run = Run { subjects: subjects.iter().map(|subject| subject.info()).collect(), ..run };
        let (failed, elsewhere) = (Vec::new(), Vec::new());
        Self { subjects, rounds, stop, run, watcher, started: Instant::now(), done_s: 0.0, total_s: 0.0, failed, elsewhere }
    }

    /// Adds cases to the expected time.
    pub fn expect<'a>(&mut self, cases: impl IntoIterator<Item = &'a Case>) {
        let passes = (self.rounds.most + usize::from(self.rounds.warm_up)) as f64;
        for case in cases {
            let able = self.subjects.iter().filter(|subject| subject.unsupported(case).is_none()).count();
            self.total_s += case.about_s() * passes * able as f64;
        }
    }

    /// Measures all cases.
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

    /// Measures one case on the subjects that are `wanted`. Its result is the last of the run.
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
                    // A stop makes subjects and their programs fail in many ways.
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
                        self.skip(format!("{}: {}, {}: {}", labels[at], planned.panel, planned.name, error.with_hint()));
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
        // Rounds that were saved, or that belong to failed subjects, count as done.
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

    /// Reports progress of work that is not a case.
    pub(crate) fn show(&mut self, part: f64, what: &str) {
        let elapsed = self.started.elapsed().as_secs_f64();
        self.watcher.now(elapsed, if part > 0.0 { elapsed / part } else { elapsed + 60.0 }, what);
    }

    /// Removes what later cases do not need. Failures are retried at the end.
    pub fn tidy(&mut self) {
        for subject in &mut self.subjects {
            if let Err(error) = subject.tidy() {
                self.run.notes.push(format!("{}: {error}", subject.info().label));
            }
        }
    }

    /// Records what was not measured, once.
    pub fn skip(&mut self, why: String) {
        if !self.run.left_out.contains(&why) {
            self.run.left_out.push(why);
        }
    }

    /// Ends the run: adds notes, and removes everything.
    pub fn finish(mut self, outcome: &Result<(), Error>) -> Run {
        self.sum_up(outcome);
        self.clean();
        self.run
    }

    /// Adds the notes of a finished run.
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

    /// Removes everything that the run made. What remains is noted. After a stop request the time
    /// is limited.
    pub fn clean(&mut self) {
        self.watcher.now(self.total_s, self.total_s, "removing the run's files");
        let mut asked = None;
        for mut subject in std::mem::take(&mut self.subjects) {
            let (label, place) = (subject.info().label, subject.place());
            let (sender, done) = mpsc::channel();
            // A server, mount or agent that hangs blocks only this thread.
            std::thread::spawn(move || {
                let outcome = subject.clean();
                sender.send((subject, outcome))
            });
            let outcome = loop {
                match done.recv_timeout(TICK) {
                    Ok((subject, outcome)) => {
                        // Other subjects may depend on what this one guards.
                        self.subjects.push(subject);
                        break outcome.map_err(|error| error.to_string());
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break Err("it failed".into()),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if self.stop.is_set() && asked.get_or_insert_with(Instant::now).elapsed() > CLEANED_WITHIN {
                            break Err(format!("not finished {} s after the interruption", CLEANED_WITHIN.as_secs()));
                        }
                    }
                }
            };
            if let Err(why) = outcome {
                let left = place.map_or_else(String::new, |place| format!("; left behind: {place}"));
                self.run.notes.push(format!("{label}: the run's files could not be removed: {why}{left}"));
            }
        }
    }

    fn judge(&mut self) {
        let loud = self.elsewhere.iter().filter(|part| **part > NOISY).count();
        if loud * 5 > self.elsewhere.len() {
            self.run.notes.push(format!(
                "noisy machine: in {loud} of {} measurements other processes used more than {:.0}% of it (median {:.0}%); ratios of pairs are more reliable \
                 than absolute figures",
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
                "{wide} of {intervals} figures are uncertain by more than {:.0}%; use a quieter machine or more rounds",
                WIDE * 100.0
            ));
        }
        let limited: Vec<String> = all()
            .filter(|(_, subject)| subject.client_is_limit)
            .map(|(result, subject)| format!("{} ({}, {})", subject.label, result.panel, result.name))
            .collect();
        if !limited.is_empty() {
            notes.push(format!(
                "the client was the limit, and the server may be faster: the busiest thread of the load generator had no CPU time left, or client and server \
                 share a machine without CPU time left, most of which the client used: {}",
                limited.join("; ")
            ));
        }
        for (count, what) in [
            (refused as fn(&SubjectResult) -> u64, "were refused"),
            (
                SubjectResult::unanswered,
                "had no answer on an open connection; with Kerberos a server may drop calls outside its sequence window (RFC 2203; 32 in NFS-Ganesha); \
                 use a smaller --depth",
            ),
            (
                SubjectResult::unsent,
                "were due and never sent, because no earlier call returned: the rate was higher than the server's; latencies include the time that they \
                 waited",
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
                "fewer calls were in flight than the case says: the server grants fewer slots, its Kerberos sequence window is smaller, or the written file has fewer blocks (--file-size); \
                 this alone makes latencies shorter and rates lower: {}",
                fewer.join("; ")
            ));
        }
        self.run.notes.extend(notes);
    }
}

fn refused(subject: &SubjectResult) -> u64 {
    subject.errors - subject.unanswered().min(subject.errors)
}

/// Interval of checks for a stop request.
const TICK: Duration = Duration::from_millis(50);
/// Time limit for all cleanup after a stop request.
const CLEANED_WITHIN: Duration = Duration::from_secs(15);

/// Above this share of CPU time of other processes, a measurement is disturbed.
const NOISY: f64 = 0.10;
/// Above this relative width, a figure is uncertain.
const WIDE: f64 = 0.10;

#[cfg(test)]
mod tests;
