use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use vouch_audit::record::seq_and_time;
use vouch_audit::trail::{Hit, Query, SearchCost, SearchMode, search};

use super::directory::require_trail;
use super::filter::Filter;
use super::job::JobTickets;
use super::{report_no_match, show};
use crate::cli::Global;
use crate::exit::{At as _, Outcome, forgive_closed_pipe};

/// Find records in a trail.
///
/// Closed segments have an index by user, path, file, client, key and result, which the first
/// search builds. The index only speeds up the search: every record shown is read from the trail.
/// Use --scan to search without the index, and `vouch audit verify` to check the trail itself.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit search --principal alice@EXAMPLE.ORG --from 7d /var/lib/vouch/audit\n  \
                  vouch audit search --path /srv/data/plan --renames /var/lib/vouch/audit     under all its names\n  \
                  vouch audit search --result failure --newest --limit 20 /var/lib/vouch/audit\n  \
                  vouch audit search --job 4711 /var/lib/vouch-jobs/audit /var/lib/vouch/audit\n  \
                  vouch audit search -S rename -S remove --below /srv/data/secret --json /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    /// Directories of trails. Records of several trails are merged by time.
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// Follow the file that --path or --file names through renames of it and of its directories.
    #[arg(long)]
    renames: bool,
    /// Records of this batch job: give the trail of `vouch jobs broker`, and the trails of exports
    /// whose use of the job's tickets is of interest.
    #[arg(long, value_name = "ID", conflicts_with_all = ["key", "principal", "renames"])]
    job: Option<String>,
    /// Show the newest records first.
    #[arg(long)]
    newest: bool,
    /// Show at most this many records.
    #[arg(long, short = 'n', value_name = "COUNT")]
    limit: Option<u64>,
    /// Print only the number of records.
    #[arg(long, conflicts_with = "limit")]
    count: bool,
    /// Use no index: read all segments.
    #[arg(long)]
    scan: bool,
    #[command(flatten)]
    form: show::Form,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let reading = if args.scan { SearchMode::Scan } else { SearchMode::Index };
    let mut out = std::io::BufWriter::with_capacity(64 * 1024, std::io::stdout().lock());
    let (mut count, mut written) = (0u64, Ok(()));
    let mut scratch = Vec::new();
    let mut queries = Vec::new();
    let directories: Vec<&Path> = args.directories.iter().map(PathBuf::as_path).collect();
    directories.iter().try_for_each(|directory| require_trail(directory))?;
    let job =
        args.job.as_deref().map(|job| JobTickets::read(job, &directories, reading)).transpose()?;
    for directory in directories {
        let query = args.filter.query(directory, args.renames, reading)?;
        match &job {
            Some(job) => {
                queries.extend(job.narrow(query).into_iter().map(|query| (directory, query)))
            }
            None => queries.push((directory, query)),
        }
    }
    if args.limit != Some(0) {
        in_order_of_time(&queries, args.newest, reading, |hit| {
            let record = hit.record(&mut scratch);
            if job.as_ref().is_some_and(|job| !record.as_ref().is_ok_and(|record| job.has(record)))
            {
                return true;
            }
            count += 1;
            if args.count {
                return true;
            }
            let Ok(record) = record else { return true };
            written = out.write_all(args.form.of(&record, hit.boot).as_bytes());
            written.is_ok() && args.limit.is_none_or(|limit| count < limit)
        })?;
    }
    if args.count && written.is_ok() {
        written = writeln!(out, "{count}");
    }
    if count == 0 && args.limit != Some(0) && written.is_ok() {
        report_no_match(
            &args.directories.iter().map(PathBuf::as_path).collect::<Vec<_>>(),
            &args.filter,
        );
    }
    forgive_closed_pipe(written.and_then(|()| out.flush()).at("standard output"))
}

/// Oldest or newest first, until `each` returns false. Holds at most [`AHEAD_MAX`] records of each
/// trail.
fn in_order_of_time(
    queries: &[(&Path, Query)],
    newest_first: bool,
    reading: SearchMode,
    mut each: impl FnMut(&Hit) -> bool,
) -> Outcome {
    let said = |directory: &Path, searched: io::Result<SearchCost>| {
        searched.at(directory.display()).map(|searched| tracing::debug!(?searched, "searched"))
    };
    if let [(directory, query)] = queries {
        return said(directory, search(directory, query, newest_first, reading, each));
    }
    thread::scope(|scope| {
        let (searching, hits): (Vec<_>, Vec<_>) = queries
            .iter()
            .map(|(directory, query)| {
                let (found, hits) = mpsc::sync_channel(AHEAD_MAX);
                (
                    scope.spawn(move || {
                        search(directory, query, newest_first, reading, |hit| {
                            found.send(hit.clone()).is_ok()
                        })
                    }),
                    hits,
                )
            })
            .unzip();
        let time = |hit: &Hit| seq_and_time(&hit.body).map_or(0, |(_, time)| time);
        let mut heads: Vec<Option<Hit>> = hits.iter().map(|hits| hits.recv().ok()).collect();
        loop {
            let there = heads
                .iter()
                .enumerate()
                .filter_map(|(at, head)| head.as_ref().map(|hit| (time(hit), at)));
            let next = if newest_first { there.max() } else { there.min() };
            let Some((_, at)) = next else { break };
            let hit = std::mem::replace(&mut heads[at], hits[at].recv().ok());
            if !hit.is_some_and(|hit| each(&hit)) {
                break;
            }
        }
        drop(hits);
        queries.iter().zip(searching).try_for_each(|((directory, _), searching)| {
            said(
                directory,
                searching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        })
    })
}

const AHEAD_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vouch_audit::Record;
    use vouch_audit::keys::Ratchet;
    use vouch_audit::trail::{KEY_FILE, Log, Options, SystemDisk, create_key};

    use super::*;

    #[test]
    fn search_merges_trails_by_time_and_stops_early() {
        let count = 4 * AHEAD_MAX as u64;
        let trails: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        for (trail, first) in trails.iter().zip(0..) {
            create_key(
                &SystemDisk,
                &trail.path().join(KEY_FILE),
                &Ratchet::new([first; 16], &[4; 32]),
            )
            .unwrap();
            let mut log =
                Log::open(Arc::new(SystemDisk), trail.path(), Options::default(), 1).unwrap().0;
            for number in 0..count {
                log.append_record(&Record {
                    time_ns: 3 * number + u64::from(first),
                    ..Record::default()
                });
            }
            log.close(1).unwrap();
        }
        let queries: Vec<_> = trails.iter().map(|trail| (trail.path(), Query::default())).collect();
        let found = |newest_first, limit| {
            let mut times = Vec::new();
            in_order_of_time(&queries, newest_first, SearchMode::Scan, |hit| {
                times.extend(seq_and_time(&hit.body).map(|(_, time)| time));
                times.len() < limit
            })
            .unwrap();
            times
        };
        let all: Vec<u64> = (0..3 * count).collect();
        let newest: Vec<u64> = all.iter().rev().copied().collect();
        assert_eq!(
            (found(false, usize::MAX), found(true, usize::MAX)),
            (all.clone(), newest.clone())
        );
        assert_eq!(
            (found(false, 10), found(true, 10)),
            (all[..10].to_vec(), newest[..10].to_vec())
        );
    }
}
