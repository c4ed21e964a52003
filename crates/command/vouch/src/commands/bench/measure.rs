use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use indicatif::ProgressBar;
use vouch_bench::runner::{ProgressSink, Rounds, Runner};
use vouch_bench::{Error, Run, StopFlag, Subject, report};

use super::after::read_record;
use super::outputs::Outputs;
use crate::cli::Global;
use crate::exit::{Code, Failure, Outcome};
use crate::{interrupt, progress};

/// Options of every workload.
#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    /// Quick run: small sizes and three rounds, with ranges instead of confidence intervals.
    #[arg(long)]
    pub(super) quick: bool,
    /// Maximum number of rounds for each case; the default is 10. Confidence intervals need at
    /// least six.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// End a case early when each interval is within this percentage of its median (for iops: of
    /// the median latency).
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    tight: Option<f64>,
    /// Continue the run in this record: its complete cases are not measured again. Give the same
    /// options as then. An interrupted run with --json writes such a record after each case.
    #[arg(long, value_name = "RUN.json")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

type Make<'a> = Box<dyn FnOnce(&mut Run, &StopFlag) -> Outcome<Vec<Box<dyn Subject>>> + 'a>;
type Work<'a> = Box<dyn FnOnce(&mut Runner) -> Result<(), Error> + 'a>;

pub(super) struct Part<'a> {
    pub(super) subjects: Make<'a>,
    pub(super) work: Work<'a>,
    /// The run continues without this part, even if it is the first.
    optional: bool,
}

impl<'a> Part<'a> {
    pub(super) fn new(
        subjects: impl FnOnce(&mut Run, &StopFlag) -> Outcome<Vec<Box<dyn Subject>>> + 'a,
        work: impl FnOnce(&mut Runner) -> Result<(), Error> + 'a,
    ) -> Self {
        Self { subjects: Box::new(subjects), work: Box::new(work), optional: false }
    }

    pub(super) fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// Ctrl-C. Created before the first file of a run, so that files are removed and results reported.
pub(super) struct BenchRequest {
    stop: StopFlag,
    _taken: interrupt::GracefulStop,
}

impl BenchRequest {
    pub(super) fn new() -> Self {
        let stop = StopFlag::default();
        let stop_requested = stop.clone();
        let notify = move || {
            stop_requested.set();
            // A second signal ends the process at once. The terminal sends it only to this process
            // group.
            std::mem::forget(interrupt::on_interrupt(vouch_bench::subject::terminate_all));
        };
        Self { stop, _taken: interrupt::stop_gracefully(notify) }
    }

    pub(super) const fn stop(&self) -> &StopFlag {
        &self.stop
    }
}

impl Measure {
    pub(super) fn run(
        &self,
        global: &Global,
        wish: &BenchRequest,
        parts: Vec<Part<'_>>,
    ) -> Outcome {
        self.run_without(global, wish, parts, Vec::new())
    }

    pub(super) fn run_without(
        &self,
        global: &Global,
        wish: &BenchRequest,
        parts: Vec<Part<'_>>,
        mut left_out: Vec<String>,
    ) -> Outcome {
        let mut earlier = self.resume.as_deref().map(read_record).transpose()?;
        self.outputs.check()?;
        let stop = wish.stop();
        // The program's path does not belong into the record.
        let command = std::iter::once("vouch".to_owned())
            .chain(std::env::args().skip(1))
            .collect::<Vec<_>>()
            .join(" ");
        let mut whole: Option<Run> = None;
        let (mut outcome, mut lost) = (Ok(()), false);
        let several = parts.len() > 1;
        for part in parts {
            let mut run = Run::begin(command.clone(), self.quick);
            self.check_machine(earlier.as_ref(), &run)?;
            let subjects = match (part.subjects)(&mut run, stop) {
                Ok(subjects) => subjects,
                Err(_) if stop.is_set() => {
                    outcome = Err(Error::Interrupted);
                    break;
                }
                Err(failure) if whole.is_none() && !part.optional => return Err(failure),
                Err(failure) => {
                    // A subject that disappeared was lost; one that never existed is left out.
                    lost |= failure.code() == Code::Unreachable;
                    left_out.push(failure.to_string());
                    continue;
                }
            };
            let bar = progress::fraction(global, "measuring");
            let checkpoint = self.outputs.checkpoint(whole.clone(), several);
            let lines = bar.is_hidden() && !global.quiet;
            let sink = Progress { bar: bar.clone(), lines, started: Instant::now(), checkpoint };
            vouch_bench::machine::compact_memory();
            let mut bench = Runner::new(run, subjects, self.rounds(), Box::new(sink), stop.clone());
            if let Some(earlier) = &mut earlier {
                bench.earlier = std::mem::take(&mut earlier.results);
                bench.run.notes.push(format!("continues the run of {}", earlier.began));
            }
            outcome = (part.work)(&mut bench);
            bench.sum_up(&outcome);
            if matches!(outcome, Err(Error::Interrupted)) {
                bar.finish_and_clear();
                let mut run = joined(whole.take(), bench.run.clone(), several);
                run.left_out.append(&mut left_out);
                return self.report_interrupted(&run, bench);
            }
            bench.clean();
            bar.finish_and_clear();
            if let Some(earlier) = &mut earlier {
                earlier.results = std::mem::take(&mut bench.earlier);
            }
            let run = bench.run;
            drop(bench.subjects);
            whole = Some(joined(whole, run, several));
            if outcome.is_err() {
                break;
            }
        }
        self.finish(whole, outcome, left_out, lost)
    }

    fn check_machine(&self, earlier: Option<&Run>, run: &Run) -> Outcome {
        if let (Some(earlier), Some(file)) = (earlier, &self.resume)
            && (&earlier.machine.cpu, earlier.machine.cores)
                != (&run.machine.cpu, run.machine.cores)
        {
            let why = format!(
                "is a run on another machine: {}, {} cores",
                earlier.machine.cpu, earlier.machine.cores
            );
            return Err(Failure::input(file.display(), why)
                .cure("resume a run on the machine where it began"));
        }
        Ok(())
    }

    /// Reports first: cleaning up may hang.
    fn report_interrupted(&self, run: &Run, mut bench: Runner) -> Outcome {
        let written = self.outputs.write(run);
        let notes_before = bench.run.notes.len();
        bench.clean();
        bench.run.notes[notes_before..].iter().for_each(|note| tracing::warn!("{note}"));
        written?;
        Err(Error::Interrupted.into())
    }

    fn finish(
        &self,
        whole: Option<Run>,
        outcome: Result<(), Error>,
        left_out: Vec<String>,
        lost: bool,
    ) -> Outcome {
        let Some(mut run) = whole else {
            outcome?;
            return Err(Failure::not_found(
                "",
                left_out.first().map_or("nothing to measure", String::as_str),
            ));
        };
        run.left_out.extend(left_out);
        run.incomplete |= lost;
        self.outputs.write(&run)?;
        outcome?;
        match run.results.is_empty() {
            true => Err(Failure::not_found(
                "",
                run.left_out.first().map_or("nothing could be measured", String::as_str),
            )),
            false if run.incomplete => Err(Failure::incomplete(
                "part of the run failed; see the list of what was left out",
            )),
            false => Ok(()),
        }
    }

    pub(super) fn extent<T>(&self, quick: fn() -> T, full: fn() -> T) -> T {
        if self.quick { quick() } else { full() }
    }

    /// Limits the rounds of a run without --rounds, --quick and --tight. With --tight, a run needs
    /// more than the minimum of rounds to narrow its intervals.
    pub(super) fn limit_rounds(&mut self, max: u16) {
        if !self.quick && self.tight.is_none() {
            self.rounds.get_or_insert(max);
        }
    }

    fn rounds(&self) -> Rounds {
        let rounds = if self.quick { Rounds::QUICK } else { Rounds::FULL };
        let max = self.rounds.map_or(rounds.max, usize::from);
        let spread_max = self.tight.map_or(rounds.spread_max, |percent| percent / 100.0);
        Rounds { max, min: rounds.min.min(max), spread_max, ..rounds }
    }
}

pub(super) fn joined(whole: Option<Run>, part: Run, several: bool) -> Run {
    let part = if several { part.with_named_notes() } else { part };
    match whole {
        None => part,
        Some(mut whole) => {
            whole.absorb(part);
            whole
        }
    }
}

/// A bar on a terminal, else a line on standard error for each finished case.
struct Progress {
    bar: ProgressBar,
    lines: bool,
    started: Instant,
    checkpoint: Box<dyn FnMut(&Run) + Send>,
}

impl ProgressSink for Progress {
    fn update(&mut self, done_s: f64, total_s: f64, what: &str) {
        self.bar.set_length((total_s * 10.0) as u64);
        self.bar.set_position((done_s * 10.0) as u64);
        self.bar.set_message(what.to_owned());
    }

    fn finished(&mut self, done_s: f64, total_s: f64, run: &Run) {
        (self.checkpoint)(run);
        let Some(result) = run.results.last().filter(|_| self.lines) else { return };
        let elapsed = self.started.elapsed().as_secs_f64();
        // Preparation and cleaning take longer than the plan says.
        let left = if done_s > 0.0 { elapsed / done_s * (total_s - done_s).max(0.0) } else { 0.0 };
        let figures = result.subjects.iter().filter_map(|subject| {
            Some(format!(
                "{} {}",
                subject.label,
                report::figure(result.metric, subject.figure?.median)
            ))
        });
        // The reader of standard error may be gone.
        let _ = writeln!(
            io::stderr(),
            "{elapsed:.0} s, about {left:.0} s left: {}, {}: {}",
            result.panel,
            result.name,
            figures.collect::<Vec<_>>().join(", ")
        );
    }
}

fn percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|value| (0.0..=100.0).contains(value))
        .ok_or_else(|| "write a percentage: 2".into())
}
