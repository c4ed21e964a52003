//! A run's record: everything that was measured, in a form that is kept (docs/formats/bench.md).
//! Tables, plots and comparisons are made from it alone.

use serde::{Deserialize, Serialize};

use crate::case::Metric;
use crate::latency::Latency;
use crate::machine::Machine;
use crate::sample::{Quantiles, Sample};
use crate::statistics::Interval;
use crate::subject::SubjectInfo;
use crate::{Case, Error, escape, statistics};

mod latency_at_rate;

pub use latency_at_rate::{LatencyAtRate, LatencyFigure};

/// A run, or what it had come to when it was interrupted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What this is: [`SCHEMA`].
    pub schema: String,
    /// Of the schema; another one is not read.
    pub version: u32,
    /// The command line.
    pub command: String,
    /// When it began, RFC 3339.
    pub began: String,
    /// How long it took.
    pub seconds: f64,
    /// Whether it was a first look.
    pub quick: bool,
    /// Whether somebody ended it early.
    pub interrupted: bool,
    /// Whether something failed in the middle: a subject was lost, or a case failed on one. What is
    /// told is not all that was asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub incomplete: bool,
    /// Where.
    pub machine: Machine,
    /// The nodes that took part beside it, by name.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nodes: Vec<(String, Machine)>,
    /// What was measured; the first is what the others are compared with.
    pub subjects: Vec<SubjectInfo>,
    /// The figures.
    pub results: Vec<CaseResult>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// What a reader should know before with_check a figure.
    pub notes: Vec<String>,
}

/// One case on all subjects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The command that measures it: `transfer`, `iops`.
    pub workload: String,
    /// What it belongs to: cases of one panel are a table and a plot.
    pub panel: String,
    /// Its name within the panel.
    pub name: String,
    /// Its place on the panel's axis, if that has numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub x: Option<f64>,
    /// What its figure is.
    pub metric: Metric,
    /// What its ratios are to.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub baseline: String,
    /// How it is measured, where that is one of the common cases.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<Case>,
    /// What each subject gave.
    pub subjects: Vec<SubjectResult>,
}

/// One case on one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectResult {
    /// Which.
    pub label: String,
    /// Each measurement, in the order of the rounds; without its latencies.
    pub samples: Vec<Sample>,
    /// The case's figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figure: Option<Interval>,
    /// Speed in parts of the baseline's, of pairs of the same round: above 1 is faster. None where
    /// the baseline was not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    /// Latencies of all rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<Calls>,
    /// How certain the latency is, of a load that is due at a rate: what its figure is to others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<LatencyAtRate>,
    /// CPU seconds of the client an operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_cpu_s: Option<f64>,
    /// CPU seconds of the server an operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_cpu_s: Option<f64>,
    /// Bytes of an operation.
    pub operation_len: f64,
    /// Operations of all rounds.
    pub operations: u64,
    /// Bytes of all rounds.
    pub bytes: u64,
    /// Errors of all rounds.
    pub errors: u64,
    /// How far what is written has come when a write counts as done, where that is not "stored for
    /// good".
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored: Option<String>,
    /// Whether the load generator itself could not do more.
    #[serde(default)]
    pub client_is_limit: bool,
}

/// Latencies of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// Half took no longer, microseconds.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The longest.
    pub max_us: f64,
    /// All of them.
    pub histogram: Latency,
}

/// Who does less than this part of what is due is past the knee.
const KNEE: f64 = 0.95;

/// The schema's name.
pub const SCHEMA: &str = "vouch-bench";
/// The schema's version.
pub const VERSION: u32 = 1;

impl Run {
    /// A run that begins now.
    pub fn begin(command: String, quick: bool) -> Self {
        Self {
            schema: SCHEMA.into(),
            version: VERSION,
            command,
            began: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            seconds: 0.0,
            quick,
            interrupted: false,
            incomplete: false,
            machine: Machine::here(),
            nodes: Vec::new(),
            subjects: Vec::new(),
            results: Vec::new(),
            left_out: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If it is none, or of another version.
    pub fn from_json(text: &str, name: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
            version: u32,
        }
        let head: Head =
            serde_json::from_str(text).map_err(|error| Error::Input(escape::word(&format!("{name}: not a record of a run: {error}"))))?;
        if head.schema != SCHEMA || head.version != VERSION {
            return Err(Error::Input(format!(
                "{name}: {} version {}; this program reads {SCHEMA} version {VERSION}",
                escape::word(&head.schema),
                head.version
            )));
        }
        let failed = |error: serde_json::Error| Error::Input(escape::word(&format!("{name}: {error}")));
        let mut value: serde_json::Value = serde_json::from_str(text).map_err(failed)?;
        // It may be anybody's, and goes to terminals.
        escape::record(&mut value);
        let mut run: Self = serde_json::from_value(value).map_err(failed)?;
        // Earlier records don't say of how many values an interval is.
        for subject in run.results.iter_mut().flat_map(|result| &mut result.subjects) {
            let rounds = subject.samples.len();
            for interval in [&mut subject.figure, &mut subject.ratio].into_iter().flatten().filter(|interval| interval.values == 0) {
                interval.values = rounds;
            }
        }
        // Nor how certain the latency of a step is.
        let baseline = run.baseline().to_owned();
        for result in run.results.iter_mut().filter(|result| result.subjects.iter().all(|subject| subject.latency.is_none())) {
            let baseline = if result.baseline.is_empty() { baseline.clone() } else { result.baseline.clone() };
            result.sum_up_latencies(&baseline);
        }
        Ok(run)
    }

    /// As it is kept.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("numbers and text");
        text.push('\n');
        text
    }

    /// Takes in a run of other subjects that was part of this one. Whose label is taken has another
    /// from then on: no two have the same.
    pub fn absorb(&mut self, mut other: Self) {
        // What is described in the same words is the same.
        other.subjects.retain(|about| !self.subjects.contains(about));
        for at in 0..other.subjects.len() {
            let label = other.subjects[at].label.clone();
            let taken = |name: &str| self.subjects.iter().chain(&other.subjects).any(|about| about.label == name);
            if self.subjects.iter().any(|about| about.label == label) {
                let free = (2..).map(|number| format!("{label} {number}")).find(|name| !taken(name)).expect("numbers don't end");
                other.rename(&label, &free);
            }
        }
        self.seconds += other.seconds;
        self.interrupted |= other.interrupted;
        self.incomplete |= other.incomplete;
        self.machine
            .versions
            .extend(other.machine.versions.into_iter().filter(|version| !self.machine.versions.contains(version)).collect::<Vec<_>>());
        self.subjects.extend(other.subjects);
        self.results.extend(other.results);
        self.left_out.extend(other.left_out);
        self.notes.extend(other.notes);
    }

    /// Says in each note what it is about, lest what is said of a part be believed of all.
    #[must_use]
    pub fn with_named_notes(mut self) -> Self {
        let workloads = self.results.iter().map(|result| &result.workload[..]).fold(Vec::new(), |mut all, workload| {
            if !all.contains(&workload) {
                all.push(workload);
            }
            all
        });
        if !workloads.is_empty() {
            let part = workloads.join(", ");
            self.notes.iter_mut().for_each(|note| *note = format!("{part}: {note}"));
        }
        self
    }

    fn rename(&mut self, from: &str, to: &str) {
        let labels = self.subjects.iter_mut().map(|about| &mut about.label);
        let results = self
            .results
            .iter_mut()
            .flat_map(|result| std::iter::once(&mut result.baseline).chain(result.subjects.iter_mut().map(|subject| &mut subject.label)));
        labels.chain(results).filter(|label| **label == from).for_each(|label| to.clone_into(label));
    }

    /// What is compared with while it is measured; of a run of several parts that of the first.
    /// Each result says its own.
    pub fn baseline(&self) -> &str {
        self.subjects.first().map_or("", |about| &about.label)
    }

    /// What these results are compared with, each once.
    pub fn baselines<'a>(&'a self, results: impl IntoIterator<Item = &'a CaseResult>) -> Vec<&'a str> {
        results.into_iter().map(|result| result.baseline(self)).fold(Vec::new(), |mut all, label| {
            if !all.contains(&label) {
                all.push(label);
            }
            all
        })
    }

    /// Panels of one workload, in the order of their first case.
    pub fn panels(&self) -> Vec<(&str, &str, Vec<&CaseResult>)> {
        let mut panels: Vec<(&str, &str, Vec<&CaseResult>)> = Vec::new();
        for result in &self.results {
            match panels.iter_mut().find(|(workload, panel, _)| *workload == result.workload && *panel == result.panel) {
                Some((_, _, results)) => results.push(result),
                None => panels.push((&result.workload, &result.panel, vec![result])),
            }
        }
        panels
    }
}

impl CaseResult {
    /// Of nobody yet.
    pub fn new(workload: impl Into<String>, panel: impl Into<String>, name: impl Into<String>, metric: Metric) -> Self {
        let (workload, panel, name) = (workload.into(), panel.into(), name.into());
        Self { workload, panel, name, x: None, metric, baseline: String::new(), case: None, subjects: Vec::new() }
    }

    /// What its ratios are to.
    pub fn baseline<'a>(&'a self, run: &'a Run) -> &'a str {
        if self.baseline.is_empty() { run.baseline() } else { &self.baseline }
    }

    /// Takes the ratios away from those for whom a write is done when it has come less far, or
    /// farther, than for the baseline; what there is to say of it.
    pub fn part(&mut self, stored: &[(String, Option<&'static str>)]) -> Option<String> {
        let of = |label: &str| stored.iter().find(|(other, _)| other == label).and_then(|(_, how)| *how);
        let (base, mut apart) = (of(&self.baseline), Vec::new());
        for subject in &mut self.subjects {
            let how = of(&subject.label);
            subject.stored = how.map(str::to_owned);
            if how != base {
                subject.take_ratios();
                apart.push(format!("{}: {}", subject.label, how.unwrap_or(FOR_GOOD)));
            }
        }
        (!apart.is_empty()).then(|| {
            format!(
                "{}: no ratio for writes that are done at another time than those of {} ({}): {}",
                self.workload,
                self.baseline,
                base.unwrap_or(FOR_GOOD),
                apart.join("; ")
            )
        })
    }

    /// The result of a subject.
    pub fn of(&self, label: &str) -> Option<&SubjectResult> {
        self.subjects.iter().find(|subject| subject.label == label)
    }

    /// Sums up what each subject gave: the samples of each, round by round. A subject without
    /// samples is left out. Ratios are to the subject of the label `baseline`; where it gave
    /// nothing there are none, for another one's would be read as the baseline's.
    pub fn sum_up(&mut self, baseline: &str, samples: Vec<(String, Vec<Sample>)>) {
        baseline.clone_into(&mut self.baseline);
        let base = samples.iter().find(|(label, _)| label == baseline).map_or(Vec::new(), |(_, samples)| samples.clone());
        self.subjects = samples
            .into_iter()
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(label, samples)| {
                let figures: Vec<f64> = samples.iter().map(|sample| sample.figure(self.metric)).collect();
                let ratios: Vec<f64> = samples.iter().zip(&base).map(|(sample, base)| self.metric.ratio(sample, base)).collect();
                SubjectResult::of(label, samples, Interval::of(&figures), Interval::of(&ratios))
            })
            .collect();
        // Who has done all that was due was kept from nothing.
        let held: Vec<bool> = self.subjects.iter().map(|subject| self.is_held(subject)).collect();
        self.subjects.iter_mut().zip(held).filter(|(_, held)| *held).for_each(|(subject, _)| subject.client_is_limit = false);
        self.sum_up_latencies(baseline);
    }
}

impl SubjectResult {
    /// Of the errors, calls that had no answer.
    pub fn unanswered(&self) -> u64 {
        self.samples.iter().map(|sample| sample.unanswered).sum()
    }

    /// Calls in flight, where the server allowed fewer than were wanted.
    pub fn in_flight(&self) -> Option<u32> {
        self.samples.iter().filter_map(|sample| sample.depth).min()
    }

    /// Calls that were due at a time and never sent.
    pub fn unsent(&self) -> u64 {
        self.samples.iter().map(|sample| sample.unsent).sum()
    }

    /// Medians of the other figures that the rounds told, by name.
    pub fn others(&self) -> Vec<(&str, f64)> {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.samples.iter().flat_map(|sample| &sample.others) {
            if name != BUSIEST && !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let of = |wanted: &str| -> Vec<f64> {
            self.samples.iter().flat_map(|sample| &sample.others).filter(|(name, _)| name == wanted).map(|(_, figure)| *figure).collect()
        };
        names.into_iter().map(|name| (name, statistics::median(&of(name)))).collect()
    }

    fn of(label: String, mut samples: Vec<Sample>, figure: Option<Interval>, ratio: Option<Interval>) -> Self {
        let mut histogram = Latency::new();
        samples.iter().for_each(|sample| histogram.merge(&sample.latency));
        samples.iter_mut().for_each(|sample| {
            sample.calls = Quantiles::of(&sample.latency);
            sample.latency = Latency::new();
        });
        let per_operation = |cpu: fn(&Sample) -> Option<f64>| {
            let of_each: Vec<f64> = samples
                .iter()
                .filter(|sample| sample.operations > 0)
                .filter_map(|sample| Some(cpu(sample)? / sample.operations as f64))
                .collect();
            (!of_each.is_empty()).then(|| statistics::median(&of_each))
        };
        let sum = |count: fn(&Sample) -> u64| samples.iter().map(count).sum::<u64>();
        let (operations, bytes) = (sum(|sample| sample.operations), sum(|sample| sample.bytes));
        Self {
            label,
            figure,
            ratio,
            latency: None,
            calls: (histogram.count() > 0).then(|| Calls::of(histogram)),
            client_cpu_s: per_operation(|sample| sample.client_cpu_s),
            server_cpu_s: per_operation(|sample| sample.server_cpu_s),
            operation_len: if operations == 0 { 0.0 } else { bytes as f64 / operations as f64 },
            operations,
            bytes,
            errors: sum(|sample| sample.errors),
            stored: None,
            client_is_limit: client_is_limit(&samples),
            samples,
        }
    }
}

/// Whether the load generator could not do more: its busiest thread had no CPU time left, or it
/// kept a server of the same machine from more, in the middle one of the rounds.
fn client_is_limit(samples: &[Sample]) -> bool {
    let busiest: Vec<f64> =
        samples.iter().flat_map(|sample| &sample.others).filter(|(name, _)| name == BUSIEST).map(|(_, part)| *part).collect();
    let crowding = samples.iter().filter(|sample| sample.crowds).count();
    !busiest.is_empty() && statistics::median(&busiest) >= LIMIT || 2 * crowding > samples.len()
}

impl Calls {
    fn of(histogram: Latency) -> Self {
        Self {
            p50_us: histogram.quantile_us(0.5),
            p99_us: histogram.quantile_us(0.99),
            p999_us: histogram.quantile_us(0.999),
            mean_us: histogram.mean_us(),
            max_us: histogram.max_us(),
            histogram: histogram.coarse(),
        }
    }
}

/// How far a write has come otherwise.
const FOR_GOOD: &str = "stored for good";
/// The name of what the busiest thread of the load generator used of a CPU, in the other figures of
/// a sample.
pub(crate) const BUSIEST: &str = "busiest client thread";
/// A client thread that is on a CPU for this part of the time has none left for more load.
const LIMIT: f64 = 0.95;

#[cfg(test)]
mod tests;
