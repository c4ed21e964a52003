use std::path::PathBuf;

use vouch_audit::trail::{SearchMode, Trust, verify};
use vouch_audit_pipeline::report::{About, summarize};

use super::directory::require_trail;
use super::filter::Filter;
use super::verify::public;
use super::{hex, report_no_match};
use crate::cli::Global;
use crate::exit::{At as _, Outcome};
use crate::{output, when};

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
    /// Print the report as an HTML page with a timeline and the result of a verification.
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// The trail's first public key for the verification: 64 hexadecimal digits, or a file that
    /// holds them.
    #[arg(long, value_name = "KEY", requires = "html")]
    public: Option<String>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    require_trail(&args.directory)?;
    let query = args.filter.query(&args.directory, false, SearchMode::Index)?;
    let report = summarize(&args.directory, &query, args.top).at(args.directory.display())?;
    if report.is_empty() {
        report_no_match(&[&args.directory], &args.filter);
    }
    if args.json {
        output::json(&report)
    } else if args.html {
        output::text(&report.html(&about(&args)?))
    } else {
        output::text(&report.text())
    }
}

fn about(args: &Args) -> Outcome<About> {
    let public = args.public.as_deref().map(public).transpose()?;
    let has_key = public.is_some();
    let found = verify(&args.directory, &Trust { public, ..Trust::default() }, |_, _| {})
        .at(args.directory.display())?;
    let of_key = if has_key {
        "against the given public key"
    } else {
        "without a public key from elsewhere: the trail's own first key was trusted"
    };
    let result = match found.faults.len() {
        0 => "sound".to_owned(),
        count => format!("{count} faults; run vouch audit verify"),
    };
    let unsealed = if found.unsealed == 0 {
        String::new()
    } else {
        format!(", {} not yet sealed", found.unsealed)
    };
    Ok(About {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        directory: args
            .directory
            .canonicalize()
            .at(args.directory.display())?
            .display()
            .to_string(),
        trail: found.trail.map_or_else(|| "-".to_owned(), |trail| hex(&trail)),
        made_ns: when::now_s().saturating_mul(1_000_000_000),
        is_sound: found.faults.is_empty(),
        verification: format!(
            "{result} ({} records in {} segments{unsealed}), {of_key}",
            found.records, found.segments
        ),
    })
}
