use std::io::Write as _;
use std::path::{Path, PathBuf};

use vouch_bench::record::kept_run;
use vouch_bench::{Run, report};

use super::outputs::Outputs;
use crate::exit::{At as _, Failure, Outcome};
use crate::output;

/// Compare two runs.
#[derive(Debug, clap::Args)]
pub(super) struct Compare {
    /// A record, or FILE.jsonl#RUN: a kept run.
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// A later one.
    #[arg(value_name = "B.json")]
    b: PathBuf,
}

/// Show kept runs as table, HTML page or CSV. Several runs become one page.
///
/// With --contents the page is ordered by document, with a heading and a sentence for each figure.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// The record, or FILE.jsonl#RUN: a kept run. Several give one --html page, in this order.
    #[arg(value_name = "RUN.json", required_unless_present = "contents")]
    runs: Vec<PathBuf>,
    /// Titles, sentences and records of the --html page (docs/formats/bench.md). Records are
    /// relative to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "runs", requires = "html")]
    contents: Option<PathBuf>,
    /// Append the figures of the record to this file of kept runs (docs/formats/bench.md). The name
    /// of the record, without .json, names the run.
    #[arg(long, value_name = "FILE.jsonl", requires = "runs")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
}

impl Compare {
    pub(super) fn run(self) -> Outcome {
        output::text(&report::compare(&read(&self.a)?, &read(&self.b)?))
    }
}

impl Report {
    pub(super) fn run(self) -> Outcome {
        if let Some(file) = &self.contents {
            self.outputs.check()?;
            return self.outputs.write_page(&page(file)?);
        }
        let runs = self.runs.iter().map(|run| read(run)).collect::<Outcome<Vec<_>>>()?;
        if self.outputs.csv.is_some() && runs.iter().any(Run::is_kept) {
            return Err(Failure::usage("--csv", "a kept run has no single rounds"));
        }
        self.outputs.check()?;
        if let Some(file) = &self.keep {
            self.runs.iter().zip(&runs).try_for_each(|(record, run)| keep(file, record, run))?;
        }
        match &runs[..] {
            [run] => self.outputs.write(run),
            runs => self.outputs.write_page(&report::html_of_runs(runs)),
        }
    }
}

fn page(file: &Path) -> Outcome<String> {
    let text = std::fs::read_to_string(file).at(file.display())?;
    let contents = report::Contents::from_json(&text, &file.display().to_string())?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let runs = contents
        .records()
        .map(|(name, record)| Ok((name.to_owned(), read(&directory.join(record))?)));
    Ok(contents.html(runs.collect::<Outcome<_>>()?)?)
}

fn keep(file: &Path, record: &Path, run: &Run) -> Outcome {
    let name = record.file_stem().unwrap_or_default().to_string_lossy();
    let figures = run.to_figures(&name);
    let first = figures.split(',').next().unwrap_or_default();
    let is_there =
        file.exists() && std::fs::read_to_string(file).at(file.display())?.contains(first);
    if is_there {
        return Err(
            Failure::input(file.display(), format!("has a run {name}")).cure("rename the record")
        );
    }
    let mut kept =
        std::fs::File::options().create(true).append(true).open(file).at(file.display())?;
    kept.write_all(figures.as_bytes()).at(file.display())
}

fn read(file: &Path) -> Outcome<Run> {
    match file.to_str().and_then(kept_run) {
        Some((file, run)) => {
            Ok(Run::from_figures(&std::fs::read_to_string(file).at(file)?, run, file)?)
        }
        None => read_record(file),
    }
}

pub(super) fn read_record(file: &Path) -> Outcome<Run> {
    let text = std::fs::read_to_string(file).at(file.display())?;
    Ok(Run::from_json(&text, &file.display().to_string())?)
}
