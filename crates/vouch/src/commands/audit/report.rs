use std::path::PathBuf;

use vouch_audit::trail::SearchMode;
use vouch_audit_pipeline::report::summarize;

use super::filter::Filter;
use crate::cli::Global;
use crate::exit::{At as _, Outcome};
use crate::output;

/// Summarize a trail: counts by user, file, export, client, operation and failure.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch audit report --from 24h /var/lib/vouch/audit\n  \
                  vouch audit report --from 7d --html /var/lib/vouch/audit > week.html   one page, with a timeline, that needs nothing else")]
pub(crate) struct Args {
    /// Directory of the trail.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    filter: Filter,
    /// Rows of each table.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Print the report as an HTML page with a timeline.
    #[arg(long, conflicts_with = "json")]
    html: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let query = args.filter.query(&args.directory, false, SearchMode::Index)?;
    let report = summarize(&args.directory, &query, args.top).at(args.directory.display())?;
    if args.json {
        output::json(&report)
    } else if args.html {
        output::text(&report.html())
    } else {
        output::text(&report.text())
    }
}
