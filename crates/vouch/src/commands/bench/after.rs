//! `vouch bench compare` and `report`: output from kept records.

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

/// Show a kept run as table, HTML page or CSV.
#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// The record.
    #[arg(value_name = "RUN.json")]
    run: PathBuf,
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
        let run = read(&self.run)?;
        self.outputs.check()?;
        self.outputs.write(&run)
    }
}

pub(super) fn read(file: &Path) -> Outcome<Run> {
    let text = std::fs::read_to_string(file).at(file.display())?;
    Ok(Run::from_json(&text, &file.display().to_string())?)
}
