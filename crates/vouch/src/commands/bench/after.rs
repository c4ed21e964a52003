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
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// The record; several give one --html page, in this order.
    #[arg(value_name = "RUN.json", required = true)]
    runs: Vec<PathBuf>,
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
        let runs = self.runs.iter().map(|run| read(run)).collect::<Outcome<Vec<_>>>()?;
        self.outputs.check()?;
        match &runs[..] {
            [run] => self.outputs.write(run),
            runs => self.outputs.write_page(runs),
        }
    }
}

pub(super) fn read(file: &Path) -> Outcome<Run> {
    let text = std::fs::read_to_string(file).at(file.display())?;
    Ok(Run::from_json(&text, &file.display().to_string())?)
}
