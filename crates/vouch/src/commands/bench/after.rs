use std::path::{Path, PathBuf};

use vouch_bench::{Run, report};

use super::outputs::Outputs;
use crate::exit::{At as _, Outcome};
use crate::output;

/// Compare two runs.
#[derive(Debug, clap::Args)]
pub(super) struct Compare {
    /// A record.
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// A later record.
    #[arg(value_name = "B.json")]
    b: PathBuf,
}

/// Show kept runs as table, HTML page or CSV. Several runs become one page.
///
/// With --contents the page is ordered by document, with a heading and a sentence for each figure.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// The record; several give one --html page, in this order.
    #[arg(value_name = "RUN.json", required_unless_present = "contents")]
    runs: Vec<PathBuf>,
    /// Titles, sentences and records of the --html page (docs/formats/bench.md). Records are
    /// relative to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "runs", requires = "html")]
    contents: Option<PathBuf>,
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
        self.outputs.check()?;
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
    let runs = contents.records().map(|(name, record)| Ok((name.to_owned(), read(&directory.join(record))?)));
    Ok(contents.html(runs.collect::<Outcome<_>>()?)?)
}

pub(super) fn read(file: &Path) -> Outcome<Run> {
    let text = std::fs::read_to_string(file).at(file.display())?;
    Ok(Run::from_json(&text, &file.display().to_string())?)
}
