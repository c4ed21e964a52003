//! `vouch audit search`: the records that fit a question.

use std::io::Write as _;
use std::path::PathBuf;

use vouch_audit::record::seq_and_time;
use vouch_audit::trail::{Hit, Reading, search};

use super::filter::Filter;
use super::show;
use crate::cli::Global;
use crate::exit::{At as _, Outcome, forgive_closed_pipe};

/// Find records in a trail.
///
/// Closed segments have an index by user, path, file, client, key and result, built beside them at the first search. It is only a help: each record that is shown was
/// read from the trail itself. Who doubts that the index leaves none out reads through with --scan, and who doubts the trail asks `vouch audit verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch audit search --principal alice@EXAMPLE.ORG --from 7d /var/lib/vouch/audit\n  \
                  vouch audit search --path /srv/data/plan --renames /var/lib/vouch/audit     under all its names\n  \
                  vouch audit search --result failure --newest --limit 20 /var/lib/vouch/audit\n  \
                  vouch audit search -S rename -S remove --below /srv/data/secret --json /var/lib/vouch/audit")]
pub(crate) struct Args {
    /// The trail's directory; of several, such as the server's and a host's, the records are put in the order of time.
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// Follow the file that --path or --file names: all its names, before and after renames of it and of its directories.
    #[arg(long)]
    renames: bool,
    /// The newest first.
    #[arg(long)]
    newest: bool,
    /// At most so many.
    #[arg(long, short = 'n', value_name = "COUNT")]
    limit: Option<u64>,
    /// Print only how many there are.
    #[arg(long, conflicts_with = "limit")]
    count: bool,
    /// Believe no index: read all segments from end to end.
    #[arg(long)]
    scan: bool,
    #[command(flatten)]
    form: show::Form,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let reading = if args.scan { Reading::Scan } else { Reading::Index };
    let mut out = std::io::BufWriter::with_capacity(64 * 1024, std::io::stdout().lock());
    let (mut count, mut written) = (0u64, Ok(()));
    let mut scratch = Vec::new();
    let mut show = |hit: &Hit, count: u64| {
        let Ok(record) = hit.record(&mut scratch) else { return true };
        written = out.write_all(args.form.of(&record, hit.boot).as_bytes());
        written.is_ok() && args.limit.is_none_or(|limit| count < limit)
    };
    // Of one trail what is found is shown at once; of several, all is found before it can be put in order.
    let mut found: Vec<(u64, Hit)> = Vec::new();
    for directory in &args.directories {
        let query = args.filter.query(directory, args.renames, reading)?;
        if args.limit == Some(0) {
            continue;
        }
        let mut of_this = 0;
        let searched = search(directory, &query, args.newest, reading, |hit| {
            count += 1;
            of_this += 1;
            if args.count {
                return true;
            }
            if args.directories.len() == 1 {
                return show(hit, count);
            }
            found.push((seq_and_time(&hit.body).map_or(0, |(_, time)| time), hit.clone()));
            args.limit.is_none_or(|limit| of_this < limit)
        });
        let searched = searched.at(directory.display())?;
        tracing::debug!(?searched, "searched");
    }
    found.sort_by_key(|(time, _)| *time);
    if args.newest {
        found.reverse();
    }
    for (at, (_, hit)) in found.iter().enumerate() {
        if !show(hit, at as u64 + 1) {
            break;
        }
    }
    if args.count && written.is_ok() {
        written = writeln!(out, "{count}");
    }
    forgive_closed_pipe(written.and_then(|()| out.flush()).at("standard output"))
}
