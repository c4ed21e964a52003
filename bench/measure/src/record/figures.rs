//! Kept runs: lines of a data file, one for each subject of a case, without the single rounds
//! (docs/formats/bench.md).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Run, SubjectResult};
use crate::sample::{BUSIEST, Sample};
use crate::statistics::Interval;
use crate::workload::added_latency;
use crate::{Error, escape, statistics};

/// What reports show of the rounds. Kept runs have this instead of their samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    pub count: usize,
    #[serde(default)]
    pub unanswered: u64,
    #[serde(default)]
    pub unsent: u64,
    /// Calls in flight, where a round had fewer than its case asks for.
    #[serde(default)]
    pub in_flight: Option<u32>,
    /// Medians.
    #[serde(default)]
    pub others: Vec<(String, f64)>,
    /// Milliseconds beside the baseline, for calls one at a time.
    #[serde(default)]
    pub added_ms: Option<Interval>,
}

impl Rounds {
    fn of(samples: &[Sample]) -> Self {
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in samples.iter().flat_map(|sample| &sample.others) {
            if name != BUSIEST && !names.contains(&name) {
                names.push(name);
            }
        }
        let figures = |wanted: &str| -> Vec<f64> {
            samples
                .iter()
                .flat_map(|sample| &sample.others)
                .filter(|(name, _)| name == wanted)
                .map(|(_, figure)| *figure)
                .collect()
        };
        Self {
            count: samples.len(),
            unanswered: samples.iter().map(|sample| sample.unanswered).sum(),
            unsent: samples.iter().map(|sample| sample.unsent).sum(),
            in_flight: samples.iter().filter_map(|sample| sample.depth).min(),
            others: names
                .into_iter()
                .map(|name| (name.clone(), statistics::median(&figures(name))))
                .collect(),
            added_ms: None,
        }
    }
}

impl SubjectResult {
    pub fn rounds(&self) -> Rounds {
        self.rounds.clone().unwrap_or_else(|| Rounds::of(&self.samples))
    }
}

impl Run {
    pub fn is_kept(&self) -> bool {
        self.results
            .iter()
            .flat_map(|result| &result.subjects)
            .any(|subject| subject.rounds.is_some())
    }

    /// Lines of the data file: the run, then each subject of each case. The first of a case has
    /// `workload`. Numbers have nine digits.
    pub fn to_figures(&self, name: &str) -> String {
        let mut head = json!(self);
        head.as_object_mut().expect("a struct").remove("results");
        let mut lines = vec![head];
        for result in &self.results {
            let base = result.of(result.baseline(self));
            for (at, subject) in result.subjects.iter().enumerate() {
                let added_ms = base
                    .filter(|_| result.workload == "concurrency")
                    .and_then(|base| added_latency(subject, base));
                let rounds = Some(Rounds { added_ms, ..subject.rounds() });
                let mut row =
                    json!(SubjectResult { samples: Vec::new(), rounds, ..subject.clone() });
                let mut more =
                    json!({ "panel": result.panel, "name": result.name, "metric": result.metric });
                if at == 0 {
                    more["workload"] = json!(result.workload);
                    more["x"] = json!(result.x);
                    more["case"] = json!(result.case);
                    more["baseline"] = json!(
                        Some(result.baseline(self)).filter(|label| *label != self.baseline())
                    );
                }
                row.as_object_mut()
                    .expect("a struct")
                    .extend(more.as_object().expect("an object").clone());
                strip(&mut row);
                lines.push(row);
            }
        }
        lines.iter_mut().for_each(shorten);
        // The name comes first, for readers of the file.
        lines
            .iter()
            .map(|line| format!("{{\"run\":{},{}\n", json!(name), &line.to_string()[1..]))
            .collect()
    }

    pub fn from_figures(text: &str, run: &str, file: &str) -> Result<Self, Error> {
        let failed = |why: String| Error::Input(escape::word(&format!("{file}: {why}")));
        let lines = text.lines().enumerate().filter(|(_, line)| line.contains(run));
        let lines = lines.map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", at + 1)))
        });
        let mut rows: Vec<Value> = lines.collect::<Result<_, _>>()?;
        rows.retain(|row| row["run"] == run);
        let mut rows = rows.into_iter();
        let mut head = rows.next().ok_or_else(|| failed(format!("no run {run:?}")))?;
        if head["schema"].is_null() {
            return Err(failed(format!(
                "run {run:?} is no record of `vouch bench`; jq shows its lines (docs/benchmarking.md)"
            )));
        }
        let mut results: Vec<Value> = Vec::new();
        for mut row in rows {
            let subject = row.clone();
            if row["workload"].is_string() {
                row["subjects"] = json!([subject]);
                results.push(row);
            } else {
                let result = results.last_mut().ok_or_else(|| {
                    failed(format!("run {run:?}: its first figure has no workload"))
                })?;
                result["subjects"].as_array_mut().expect("made above").push(subject);
            }
        }
        head["results"] = Value::Array(results);
        Self::from_json(&head.to_string(), &format!("{file}, run {run}"))
    }
}

/// Splits `FILE.jsonl#RUN`.
pub fn kept_run(name: &str) -> Option<(&str, &str)> {
    let at = name.find(".jsonl#")? + ".jsonl".len();
    Some((&name[..at], &name[at + 1..]))
}

/// Removes what no report shows, and values that are the default.
fn strip(row: &mut Value) {
    // Reports show the latencies of the rounds instead.
    if row["latency"].is_object()
        && let Some(calls) = row["calls"].as_object_mut()
    {
        calls.retain(|name, _| name == "p999_us");
    }
    for path in ["/calls", "/latency/p50", "/latency/p99", "/rounds", ""] {
        if let Some(fields) = row.pointer_mut(path).and_then(Value::as_object_mut) {
            fields.retain(|name, value| {
                let is_unshown =
                    ["histogram", "max_us", "mean_us", "added_us", "bytes", "operations"]
                        .contains(&name.as_str());
                let is_default = ["errors", "unanswered", "unsent"].contains(&name.as_str())
                    && *value == json!(0)
                    || *value == json!(false)
                    || *value == json!([]);
                !is_unshown && !is_default
            });
        }
    }
}

/// Nine digits, no nulls.
fn shorten(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_u64() && !number.is_i64() => {
            let short =
                number.as_f64().and_then(|number| format!("{number:.8e}").parse::<f64>().ok());
            *value = short.map_or(Value::Null, |short| {
                if short.fract() == 0.0 && short.abs() < 1e15 {
                    json!(short as i64)
                } else {
                    json!(short)
                }
            });
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Object(all) => {
            all.values_mut().for_each(shorten);
            all.retain(|_, value| !value.is_null());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report;

    #[test]
    fn kept_run_gives_same_reports() {
        let mut run = report::tests::steps();
        let mut low = run.results[0].clone();
        (low.workload, low.panel, low.case) =
            ("concurrency".into(), "Low concurrency".into(), None);
        run.results.push(low);
        let sample = &mut run.results[0].subjects[1].samples[0];
        (sample.unanswered, sample.unsent, sample.depth) = (3, 4, Some(2));
        sample.others.push(("context switches".into(), 1234.0));
        let other = Run { command: "another".into(), ..run.clone() };
        let file = other.to_figures("x")
            + &run.to_figures("x-2")
            + "{\"run\":\"by hand\",\"began\":\"2026-11-26\"}\n";
        let kept = Run::from_figures(&file, "x-2", "f.jsonl").expect("it is kept");
        assert!(
            kept.results
                .iter()
                .flat_map(|result| &result.subjects)
                .all(|subject| subject.samples.is_empty())
        );
        assert_eq!(report::html(&kept), report::html(&run));
        assert_eq!(report::table(&kept), report::table(&run));
        assert_eq!(report::compare(&kept, &run), report::compare(&run, &run));
        assert_eq!(kept.to_figures("x-2"), run.to_figures("x-2"));
        for (name, why) in [("y", "no run"), ("by hand", "no record of `vouch bench`")] {
            let error = Run::from_figures(&file, name, "f.jsonl").expect_err("refused").to_string();
            assert!(error.starts_with("f.jsonl: ") && error.contains(why), "{error}");
        }
        let headless = file.replace("\"workload\":", "\"other\":");
        Run::from_figures(&headless, "x-2", "f.jsonl").expect_err("a figure without a case");
    }

    #[test]
    fn kept_run_is_named_by_file_and_run() {
        assert_eq!(kept_run("a/b.jsonl#2026-11-26-heads"), Some(("a/b.jsonl", "2026-11-26-heads")));
        assert_eq!((kept_run("a/run.json"), kept_run("b.jsonl")), (None, None));
    }
}
