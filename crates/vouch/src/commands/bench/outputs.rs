//! Where a run's results go: the terminal, and files.

use std::path::{Path, PathBuf};

use vouch_bench::{Run, report};

use crate::exit::{At as _, Outcome};
use crate::output;

/// Options of results.
#[derive(Debug, clap::Args)]
pub(super) struct Outputs {
    /// Keep the run's record (docs/formats/bench.md); `vouch bench report` makes everything else from it.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    json: Option<PathBuf>,
    /// Write a page with plots that needs nothing but this file.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Write every measurement as a line for spreadsheets.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    csv: Option<PathBuf>,
}

impl Outputs {
    /// Finds out before the work whether results can be written after it.
    pub(super) fn check(&self) -> Outcome {
        for file in [&self.json, &self.html, &self.csv].into_iter().flatten() {
            let was_there = file.exists();
            std::fs::File::options().create(true).append(true).open(file).at(file.display())?;
            // A run that comes to nothing leaves nothing behind.
            if !was_there {
                std::fs::remove_file(file).at(file.display())?;
            }
        }
        Ok(())
    }

    /// Writes all that was asked for, and the table.
    pub(super) fn write(&self, run: &Run) -> Outcome {
        let write = |file: &Path, text: String| std::fs::write(file, text).at(file.display());
        self.json.as_deref().map_or(Ok(()), |file| write(file, run.to_json()))?;
        self.html.as_deref().map_or(Ok(()), |file| write(file, report::html(run)))?;
        self.csv.as_deref().map_or(Ok(()), |file| write(file, report::csv(run)))?;
        output::text(&report::table(run))
    }
}
