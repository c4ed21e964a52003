//! A B, B A …, so that a disturbance affects all subjects.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::case::Metric;
use crate::record::{CaseResult, Run, SubjectResult};
use crate::sample::Quantiles;
use crate::statistics::{Interval, median};
use crate::{Case, Error, Sample, StopFlag, Subject};

#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    pub min: usize,
    pub max: usize,
    /// A case ends early when half of each subject's interval is at most this share of its median
    /// (open loop: of the median latency).
    pub spread_max: f64,
    /// Discards an extra first round.
    pub warm_up: bool,
}

impl Rounds {
    pub const FULL: Self =
        Self { min: crate::statistics::SURE_COUNT_MIN, max: 10, spread_max: 0.02, warm_up: true };
    pub const QUICK: Self = Self { min: 3, max: 3, spread_max: 0.05, warm_up: true };

    pub(crate) fn are_precise(
        &self,
        samples: &[Sample],
        metric: Metric,
        case: Option<&Case>,
    ) -> bool {
        let of_a_step = matches!(case, Some(Case::Load(load)) if load.rate.is_some());
        let figure = |sample: &Sample| match Quantiles::of(&sample.latency).filter(|_| of_a_step) {
            Some(calls) => calls.p50_us,
            None => sample.figure(metric),
        };
        let figures: Vec<f64> = samples.iter().map(figure).collect();
        Interval::of(&figures).is_none_or(|interval| interval.spread() <= self.spread_max)
    }
}

pub trait ProgressSink: Send {
    /// `done_s` of about `total_s` seconds are measured. `what` is measured now.
    fn update(&mut self, done_s: f64, total_s: f64, what: &str);

    fn finished(&mut self, _done_s: f64, _total_s: f64, _run: &Run) {}
}

pub struct Runner {
    pub subjects: Vec<Box<dyn Subject>>,
    pub rounds: Rounds,
    pub stop: StopFlag,
    pub run: Run,
    /// A complete earlier result replaces the measurement of the same case.
    pub earlier: Vec<CaseResult>,
    progress: Box<dyn ProgressSink>,
    started: Instant,
    done_s: f64,
    total_s: f64,
    failed: Vec<String>,
    elsewhere: Vec<f64>,
}

#[derive(Debug, Clone)]
pub struct PlannedCase {
    pub workload: &'static str,
    pub panel: String,
    pub name: String,
    pub x: Option<f64>,
    pub case: Case,
    pub metric: Metric,
}

impl PlannedCase {
    pub fn new(
        workload: &'static str,
        panel: impl Into<String>,
        name: impl Into<String>,
        case: Case,
    ) -> Self {
        Self {
            workload,
            panel: panel.into(),
            name: name.into(),
            x: None,
            metric: case.metric(),
            case,
        }
    }

    pub fn at(self, x: f64) -> Self {
        Self { x: Some(x), ..self }
    }
}

impl Runner {
    pub fn new(
        run: Run,
        subjects: Vec<Box<dyn Subject>>,
        rounds: Rounds,
        progress: Box<dyn ProgressSink>,
        stop: StopFlag,
    ) -> Self {
        let run = Run { subjects: subjects.iter().map(|subject| subject.info()).collect(), ..run };
        let (failed, elsewhere) = (Vec::new(), Vec::new());
        Self {
            subjects,
            rounds,
            stop,
            run,
            earlier: Vec::new(),
            progress,
            started: Instant::now(),
            done_s: 0.0,
            total_s: 0.0,
            failed,
            elsewhere,
        }
    }

    pub(crate) fn expect<'a>(&mut self, cases: impl IntoIterator<Item = &'a Case>) {
        let passes = (self.rounds.max + usize::from(self.rounds.warm_up)) as f64;
        for case in cases {
            let able =
                self.subjects.iter().filter(|subject| subject.unsupported(case).is_none()).count();
            self.total_s += case.estimated_s() * passes * able as f64;
        }
    }

    /// As `expect`, in place of all that was expected and is not done.
    pub(crate) fn expect_only<'a>(&mut self, cases: impl IntoIterator<Item = &'a Case>) {
        self.total_s = self.done_s;
        self.expect(cases);
    }

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

    pub(crate) fn run_case(
        &mut self,
        planned: &PlannedCase,
        wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), Error> {
        let labels: Vec<String> =
            self.subjects.iter().map(|subject| subject.info().label).collect();
        let mut samples: Vec<(String, Vec<Sample>)> =
            labels.iter().map(|label| (label.clone(), Vec::new())).collect();
        let mut able = self.supporting(planned, &labels, wanted);
        if let Some(result) = self.take_earlier(planned, &able, &labels) {
            self.total_s -= planned.case.estimated_s() * (self.passes() * able.len()) as f64;
            self.run.results.push(result);
            return Ok(());
        }
        let before = self.done_s;
        let outcome = self.run_rounds(planned, &mut able, &mut samples);
        let measurements = self.passes() * labels.len().min(able.len().max(1));
        self.done_s = before + planned.case.estimated_s() * measurements as f64;
        self.add_result(planned, samples);
        if outcome.is_ok() {
            self.progress.finished(self.done_s, self.total_s.max(self.done_s), &self.run);
        }
        outcome
    }

    fn take_earlier(
        &mut self,
        planned: &PlannedCase,
        able: &[usize],
        labels: &[String],
    ) -> Option<CaseResult> {
        let rounds = self.rounds;
        let is_complete = |result: &CaseResult| {
            result.subjects.len() == able.len()
                && able.iter().all(|&at| {
                    let samples =
                        result.of(&labels[at]).map_or(&[][..], |subject| &subject.samples);
                    samples.len() >= rounds.max
                        || samples.len() >= rounds.min
                            && rounds.are_precise(samples, planned.metric, Some(&planned.case))
                })
        };
        let at = self.earlier.iter().position(|result| {
            result.workload == planned.workload
                && result.panel == planned.panel
                && result.name == planned.name
                && result.x == planned.x
                && result.case.as_ref() == Some(&planned.case)
                && is_complete(result)
        })?;
        Some(self.earlier.swap_remove(at))
    }

    /// Takes over earlier results that have no case, if all of them are there.
    pub(crate) fn take_earlier_results(
        &mut self,
        workload: &str,
        places: &[(String, String)],
    ) -> bool {
        let is_at = |result: &CaseResult, (panel, name): &(String, String)| {
            result.workload == workload && result.panel == *panel && result.name == *name
        };
        let found: Option<Vec<usize>> = places
            .iter()
            .map(|place| self.earlier.iter().position(|result| is_at(result, place)))
            .collect();
        let Some(found) = found else { return false };
        self.run.results.extend(found.into_iter().map(|at| self.earlier[at].clone()));
        true
    }

    fn passes(&self) -> usize {
        self.rounds.max + usize::from(self.rounds.warm_up)
    }

    fn supporting(
        &mut self,
        planned: &PlannedCase,
        labels: &[String],
        wanted: &mut dyn FnMut(&str) -> bool,
    ) -> Vec<usize> {
        let mut able = Vec::new();
        for (at, label) in labels.iter().enumerate() {
            if self.failed.contains(label) || !wanted(label) {
                continue;
            }
            match self.subjects[at].unsupported(&planned.case) {
                None => able.push(at),
                Some(why) => self.skip(format!("{label}: {}: {why}", planned.workload)),
            }
        }
        able
    }

    fn run_rounds(
        &mut self,
        planned: &PlannedCase,
        able: &mut Vec<usize>,
        samples: &mut [(String, Vec<Sample>)],
    ) -> Result<(), Error> {
        for pass in 0..self.passes() {
            let warm_up = self.rounds.warm_up && pass == 0;
            let mut turns = able.clone();
            let first = pass % turns.len().max(1);
            turns.rotate_left(first);
            for at in turns {
                let label = samples[at].0.clone();
                match self.measure(planned, at, &label, pass == 0)? {
                    Some(sample) if !warm_up => samples[at].1.push(sample),
                    Some(_) => {}
                    None => able.retain(|other| *other != at),
                }
            }
            let counted = pass + usize::from(!self.rounds.warm_up);
            let precise = || {
                samples.iter().all(|(_, samples)| {
                    self.rounds.are_precise(samples, planned.metric, Some(&planned.case))
                })
            };
            if able.is_empty() || counted >= self.rounds.min && precise() {
                break;
            }
        }
        Ok(())
    }

    /// None if the subject failed. An error ends the run.
    fn measure(
        &mut self,
        planned: &PlannedCase,
        at: usize,
        label: &str,
        prepare: bool,
    ) -> Result<Option<Sample>, Error> {
        if self.stop.is_set() {
            return Err(Error::Interrupted);
        }
        let expected_s = self.total_s.max(self.done_s + 1e-9);
        self.progress.update(
            self.done_s,
            expected_s,
            &format!("{}: {}, {label}", planned.panel, planned.name),
        );
        let subject = &mut self.subjects[at];
        let prepared = if prepare { subject.prepare(&planned.case) } else { Ok(()) };
        let measured = prepared.and_then(|()| subject.measure(&planned.case));
        self.done_s += planned.case.estimated_s();
        match measured {
            Ok(sample) => {
                self.elsewhere.extend(sample.elsewhere);
                Ok(Some(sample))
            }
            Err(_) if self.stop.is_set() => Err(Error::Interrupted),
            Err(error @ (Error::Interrupted | Error::Corrupt(_))) => Err(error),
            Err(error) => {
                self.run.incomplete = true;
                self.skip(format!(
                    "{label}: {}, {}: {}",
                    planned.panel,
                    planned.name,
                    error.with_hint()
                ));
                if matches!(error, Error::Unreachable(_)) {
                    self.failed.push(label.to_owned());
                }
                Ok(None)
            }
        }
    }

    fn add_result(&mut self, planned: &PlannedCase, samples: Vec<(String, Vec<Sample>)>) {
        let PlannedCase { workload, panel, name, x, metric, case } = planned.clone();
        let mut result =
            CaseResult { x, case: Some(case), ..CaseResult::new(workload, panel, name, metric) };
        result.sum_up(self.run.baseline(), samples);
        let stored: Vec<(String, Option<&'static str>)> = self
            .subjects
            .iter()
            .map(|subject| (subject.info().label, subject.stored(&planned.case)))
            .collect();
        if let Some(note) = result.remove_unlike_ratios(&stored)
            && !self.run.notes.contains(&note)
        {
            self.run.notes.push(note);
        }
        if !result.subjects.is_empty() {
            self.run.results.push(result);
        }
    }

    pub(crate) fn show_progress(&mut self, part: f64, what: &str) {
        let elapsed = self.started.elapsed().as_secs_f64();
        self.progress.update(
            elapsed,
            if part > 0.0 { elapsed / part } else { elapsed + 60.0 },
            what,
        );
    }

    pub(crate) fn show_finished(&mut self, part: f64) {
        let elapsed = self.started.elapsed().as_secs_f64();
        self.progress.finished(elapsed, elapsed / part.max(1e-9), &self.run);
    }

    pub(crate) fn tidy(&mut self) {
        for subject in &mut self.subjects {
            if let Err(error) = subject.tidy() {
                self.run.notes.push(format!("{}: {error}", subject.info().label));
            }
        }
    }

    pub(crate) fn skip(&mut self, why: String) {
        if !self.run.left_out.contains(&why) {
            self.run.left_out.push(why);
        }
    }

    pub fn finish(mut self, outcome: &Result<(), Error>) -> Run {
        self.sum_up(outcome);
        self.clean();
        self.run
    }

    pub fn sum_up(&mut self, outcome: &Result<(), Error>) {
        self.run.interrupted = matches!(outcome, Err(Error::Interrupted));
        if let Err(error) = outcome
            && !self.run.interrupted
        {
            self.run.notes.push(format!("ended early: {error}"));
        }
        self.run.seconds = self.started.elapsed().as_secs_f64();
        self.add_notes();
    }

    /// Notes files that remain. Limits the time after a stop request.
    pub fn clean(&mut self) {
        self.progress.update(self.total_s, self.total_s, "removing the run's files");
        let mut cleanup_began = None;
        for mut subject in std::mem::take(&mut self.subjects) {
            let (label, place) = (subject.info().label, subject.place());
            let (sender, done) = mpsc::channel();
            // A subject that hangs blocks only this thread.
            std::thread::spawn(move || {
                let outcome = subject.clean();
                sender.send((subject, outcome))
            });
            let outcome = loop {
                match done.recv_timeout(TICK) {
                    Ok((subject, outcome)) => {
                        self.subjects.push(subject);
                        break outcome.map_err(|error| error.to_string());
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => break Err("it failed".into()),
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if self.stop.is_set()
                            && cleanup_began.get_or_insert_with(Instant::now).elapsed()
                                > CLEANUP_MAX
                        {
                            break Err(format!(
                                "not finished {} s after the interruption",
                                CLEANUP_MAX.as_secs()
                            ));
                        }
                    }
                }
            };
            if let Err(why) = outcome {
                let left =
                    place.map_or_else(String::new, |place| format!("; left behind: {place}"));
                self.run
                    .notes
                    .push(format!("{label}: the run's files could not be removed: {why}{left}"));
            }
        }
    }

    fn add_notes(&mut self) {
        let disturbed = self.elsewhere.iter().filter(|part| **part > DISTURBED_SHARE).count();
        if disturbed * 5 > self.elsewhere.len() {
            self.run.notes.push(format!(
                "noisy machine: in {disturbed} of {} measurements other processes used more than {:.0}% of it (median {:.0}%); ratios of pairs are more reliable \
                 than absolute figures",
                self.elsewhere.len(),
                DISTURBED_SHARE * 100.0,
                median(&self.elsewhere) * 100.0,
            ));
        }
        self.run.notes.extend(notes(&self.run));
    }
}

fn notes(run: &Run) -> Vec<String> {
    let all = || {
        run.results
            .iter()
            .flat_map(|result| result.subjects.iter().map(move |subject| (result, subject)))
    };
    let (wide, intervals) = all().fold((0, 0), |(wide, count), (_, subject)| {
        let is_wide = subject
            .latency
            .map(|latency| latency.p50.us)
            .or(subject.figure)
            .is_some_and(|figure| figure.spread() > UNCERTAIN_WIDTH);
        (wide + usize::from(is_wide), count + 1)
    });
    let mut notes = Vec::new();
    if wide * 5 > intervals {
        notes.push(format!(
            "{wide} of {intervals} figures are uncertain by more than {:.0}%; use a quieter machine or more rounds",
            UNCERTAIN_WIDTH * 100.0
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
    notes.extend(error_notes(run));
    let fewer: Vec<String> = all()
        .filter_map(|(result, subject)| {
            Some(format!(
                "{} {} ({}, {})",
                subject.rounds().in_flight?,
                subject.label,
                result.panel,
                result.name
            ))
        })
        .collect();
    if !fewer.is_empty() {
        notes.push(format!(
            "fewer calls were in flight than the case says: the server grants fewer slots, its Kerberos sequence window is smaller, or the written file has fewer blocks (--file-size); \
             this alone makes latencies shorter and rates lower: {}",
            fewer.join("; ")
        ));
    }
    notes
}

fn error_notes(run: &Run) -> Vec<String> {
    let all = || {
        run.results
            .iter()
            .flat_map(|result| result.subjects.iter().map(move |subject| (result, subject)))
    };
    let mut notes = Vec::new();
    for (count, what) in [
        (refused as fn(&SubjectResult) -> u64, "were refused"),
        (
            |subject| subject.rounds().unanswered,
            "had no answer on an open connection; with Kerberos a server may drop calls outside its sequence window (RFC 2203; 32 in NFS-Ganesha); \
             use a smaller --depth",
        ),
        (
            |subject| subject.rounds().unsent,
            "were due and never sent, because no earlier call returned: the rate was higher than the server's; latencies include the time that they \
             waited",
        ),
    ] {
        let those: Vec<String> = all()
            .filter(|(_, subject)| count(subject) > 0)
            .map(|(result, subject)| {
                format!("{} {} ({}, {})", count(subject), subject.label, result.panel, result.name)
            })
            .collect();
        if !those.is_empty() {
            let sum: u64 = all().map(|(_, subject)| count(subject)).sum();
            notes.push(format!("{sum} calls {what}: {}", those.join("; ")));
        }
    }
    notes
}

fn refused(subject: &SubjectResult) -> u64 {
    subject.errors - subject.rounds().unanswered.min(subject.errors)
}

const TICK: Duration = Duration::from_millis(50);
const CLEANUP_MAX: Duration = Duration::from_secs(15);

const DISTURBED_SHARE: f64 = 0.10;
const UNCERTAIN_WIDTH: f64 = 0.10;

#[cfg(test)]
mod tests;
