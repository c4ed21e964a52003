//! docs/formats/bench.md.

use serde::{Deserialize, Serialize};

use crate::case::Metric;
use crate::latency::Latency;
use crate::machine::Machine;
use crate::sample::{BUSIEST, Quantiles, Sample};
use crate::statistics::Interval;
use crate::subject::SubjectInfo;
use crate::{Case, Error, escape, statistics};

mod figures;
mod latency_at_rate;

pub use figures::{Rounds, kept_run};
pub use latency_at_rate::{LatencyAtRate, LatencyFigure};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: String,
    pub version: u32,
    pub command: String,
    /// RFC 3339.
    pub began: String,
    pub seconds: f64,
    pub quick: bool,
    pub interrupted: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub incomplete: bool,
    pub machine: Machine,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nodes: Vec<(String, Machine)>,
    /// The first is the baseline.
    pub subjects: Vec<SubjectInfo>,
    pub results: Vec<CaseResult>,
    pub left_out: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The subcommand: `transfer`, `iops`.
    pub workload: String,
    pub panel: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub x: Option<f64>,
    pub metric: Metric,
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub baseline: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub case: Option<Case>,
    pub subjects: Vec<SubjectResult>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectResult {
    pub label: String,
    /// Empty in a kept run.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Of a kept run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rounds: Option<Rounds>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub figure: Option<Interval>,
    /// Speed relative to the baseline, from pairs of the same round. Above 1 is faster.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<Interval>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calls: Option<Calls>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub latency: Option<LatencyAtRate>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_cpu_s: Option<f64>,
    pub operation_len: f64,
    #[serde(default)]
    pub operations: u64,
    #[serde(default)]
    pub bytes: u64,
    #[serde(default)]
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored: Option<String>,
    #[serde(default)]
    pub client_is_limit: bool,
}

/// Latencies in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    #[serde(default)]
    pub p50_us: f64,
    #[serde(default)]
    pub p99_us: f64,
    pub p999_us: f64,
    #[serde(default)]
    pub mean_us: f64,
    #[serde(default)]
    pub max_us: f64,
    /// Empty in a kept run.
    #[serde(default)]
    pub histogram: Latency,
}

/// A subject below this share of the due rate is past the knee of its curve.
const KNEE_SHARE: f64 = 0.95;

pub(crate) const SCHEMA: &str = "vouch-bench";
pub const VERSION: u32 = 1;

impl Run {
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
            machine: Machine::this(),
            nodes: Vec::new(),
            subjects: Vec::new(),
            results: Vec::new(),
            left_out: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn from_json(text: &str, name: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
            version: u32,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| {
            Error::Input(escape::word(&format!("{name}: not a record of `vouch bench`: {error}")))
        })?;
        if head.schema != SCHEMA || head.version != VERSION {
            return Err(Error::Input(format!(
                "{name}: {} version {}; this program reads {SCHEMA} version {VERSION}",
                escape::word(&head.schema),
                head.version
            )));
        }
        let failed =
            |error: serde_json::Error| Error::Input(escape::word(&format!("{name}: {error}")));
        let mut value: serde_json::Value = serde_json::from_str(text).map_err(failed)?;
        // The file is untrusted, and its text goes to a terminal.
        escape::record(&mut value);
        let mut run: Self = serde_json::from_value(value).map_err(failed)?;
        // Earlier records lack the number of values of an interval.
        for subject in run.results.iter_mut().flat_map(|result| &mut result.subjects) {
            let rounds = subject.samples.len();
            for interval in [&mut subject.figure, &mut subject.ratio]
                .into_iter()
                .flatten()
                .filter(|interval| interval.values == 0)
            {
                interval.values = rounds;
            }
        }
        // Earlier records lack latency intervals.
        let baseline = run.baseline().to_owned();
        for result in run
            .results
            .iter_mut()
            .filter(|result| result.subjects.iter().all(|subject| subject.latency.is_none()))
        {
            let baseline =
                if result.baseline.is_empty() { baseline.clone() } else { result.baseline.clone() };
            result.sum_up_latencies(&baseline);
        }
        Ok(run)
    }

    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("numbers and text serialize");
        text.push('\n');
        text
    }

    /// Labels that are taken get a number.
    pub fn absorb(&mut self, mut other: Self) {
        other.subjects.retain(|about| !self.subjects.contains(about));
        for at in 0..other.subjects.len() {
            let label = other.subjects[at].label.clone();
            let taken = |name: &str| {
                self.subjects.iter().chain(&other.subjects).any(|about| about.label == name)
            };
            if self.subjects.iter().any(|about| about.label == label) {
                let free = (2..)
                    .map(|number| format!("{label} {number}"))
                    .find(|name| !taken(name))
                    .expect("numbers are unlimited");
                other.rename(&label, &free);
            }
        }
        self.seconds += other.seconds;
        self.interrupted |= other.interrupted;
        self.incomplete |= other.incomplete;
        self.machine.versions.extend(
            other
                .machine
                .versions
                .into_iter()
                .filter(|version| !self.machine.versions.contains(version))
                .collect::<Vec<_>>(),
        );
        self.subjects.extend(other.subjects);
        self.results.extend(other.results);
        self.left_out.extend(other.left_out);
        self.notes.extend(other.notes);
    }

    #[must_use]
    pub fn with_named_notes(mut self) -> Self {
        let workloads = self.results.iter().map(|result| &result.workload[..]).fold(
            Vec::new(),
            |mut all, workload| {
                if !all.contains(&workload) {
                    all.push(workload);
                }
                all
            },
        );
        if !workloads.is_empty() {
            let part = workloads.join(", ");
            self.notes.iter_mut().for_each(|note| *note = format!("{part}: {note}"));
        }
        self
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        let labels = self.subjects.iter_mut().map(|about| &mut about.label);
        let results = self.results.iter_mut().flat_map(|result| {
            std::iter::once(&mut result.baseline)
                .chain(result.subjects.iter_mut().map(|subject| &mut subject.label))
        });
        labels
            .chain(results)
            .filter(|label| **label == from)
            .for_each(|label| to.clone_into(label));
    }

    pub fn baseline(&self) -> &str {
        self.subjects.first().map_or("", |about| &about.label)
    }

    pub(crate) fn baselines<'a>(
        &'a self,
        results: impl IntoIterator<Item = &'a CaseResult>,
    ) -> Vec<&'a str> {
        results.into_iter().map(|result| result.baseline(self)).fold(
            Vec::new(),
            |mut all, label| {
                if !all.contains(&label) {
                    all.push(label);
                }
                all
            },
        )
    }

    pub(crate) fn panels(&self) -> Vec<(&str, &str, Vec<&CaseResult>)> {
        let mut panels: Vec<(&str, &str, Vec<&CaseResult>)> = Vec::new();
        for result in &self.results {
            match panels
                .iter_mut()
                .find(|(workload, panel, _)| *workload == result.workload && *panel == result.panel)
            {
                Some((_, _, results)) => results.push(result),
                None => panels.push((&result.workload, &result.panel, vec![result])),
            }
        }
        panels
    }
}

impl CaseResult {
    pub fn new(
        workload: impl Into<String>,
        panel: impl Into<String>,
        name: impl Into<String>,
        metric: Metric,
    ) -> Self {
        let (workload, panel, name) = (workload.into(), panel.into(), name.into());
        Self {
            workload,
            panel,
            name,
            x: None,
            metric,
            baseline: String::new(),
            case: None,
            subjects: Vec::new(),
        }
    }

    pub fn baseline<'a>(&'a self, run: &'a Run) -> &'a str {
        if self.baseline.is_empty() { run.baseline() } else { &self.baseline }
    }

    /// Ratios of subjects whose writes have another durability than the baseline's. Returns a note
    /// about them.
    pub(crate) fn remove_unlike_ratios(
        &mut self,
        stored: &[(String, Option<&'static str>)],
    ) -> Option<String> {
        let of =
            |label: &str| stored.iter().find(|(other, _)| other == label).and_then(|(_, how)| *how);
        let (base, mut apart) = (of(&self.baseline), Vec::new());
        for subject in &mut self.subjects {
            let how = of(&subject.label);
            subject.stored = how.map(str::to_owned);
            if how != base {
                subject.take_ratios();
                apart.push(format!("{}: {}", subject.label, how.unwrap_or(STABLE_STORAGE)));
            }
        }
        (!apart.is_empty()).then(|| {
            format!(
                "{}: no ratio, because writes count as done at another point than for {} ({}): {}",
                self.workload,
                self.baseline,
                base.unwrap_or(STABLE_STORAGE),
                apart.join("; ")
            )
        })
    }

    pub fn of(&self, label: &str) -> Option<&SubjectResult> {
        self.subjects.iter().find(|subject| subject.label == label)
    }

    pub fn sum_up(&mut self, baseline: &str, samples: Vec<(String, Vec<Sample>)>) {
        baseline.clone_into(&mut self.baseline);
        let base = samples
            .iter()
            .find(|(label, _)| label == baseline)
            .map_or(Vec::new(), |(_, samples)| samples.clone());
        self.subjects = samples
            .into_iter()
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(label, samples)| {
                let figures: Vec<f64> =
                    samples.iter().map(|sample| sample.figure(self.metric)).collect();
                let ratios: Vec<f64> = samples
                    .iter()
                    .zip(&base)
                    .map(|(sample, base)| self.metric.ratio(sample, base))
                    .collect();
                SubjectResult::of(label, samples, Interval::of(&figures), Interval::of(&ratios))
            })
            .collect();
        let held: Vec<bool> = self.subjects.iter().map(|subject| self.is_held(subject)).collect();
        self.subjects
            .iter_mut()
            .zip(held)
            .filter(|(_, held)| *held)
            .for_each(|(subject, _)| subject.client_is_limit = false);
        self.sum_up_latencies(baseline);
    }
}

impl SubjectResult {
    fn of(
        label: String,
        mut samples: Vec<Sample>,
        figure: Option<Interval>,
        ratio: Option<Interval>,
    ) -> Self {
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
            rounds: None,
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

/// The busiest client thread had no CPU time left, or the client crowded out a local server.
fn client_is_limit(samples: &[Sample]) -> bool {
    let busiest: Vec<f64> = samples
        .iter()
        .flat_map(|sample| &sample.others)
        .filter(|(name, _)| name == BUSIEST)
        .map(|(_, part)| *part)
        .collect();
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

const STABLE_STORAGE: &str = "on stable storage";
/// From this CPU share on, a thread has no time left.
const LIMIT: f64 = 0.95;

#[cfg(test)]
mod tests;
