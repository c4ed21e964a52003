use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use vouch_tree_store::{CollectOptions, Database, FileTotals, Progress, WriteOptions};

use crate::cli::Global;
use crate::exit::{Failure, Outcome};
use crate::keep_options::KeepArgs;
use crate::{output, progress, size, when};

/// Collect garbage: free the space of data that no kept revision needs.
///
/// Replicas and publications continue meanwhile: marking takes no lock, and open data stays
/// readable. `vouch publish --keep N` only drops revisions; this command frees their space.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch gc --db /srv/db\n  vouch gc --db /srv/db --keep 5             forget all but the newest 5 and the tagged ones first\n  \
                  vouch gc --db /srv/db --keep-daily 7 --keep-weekly 5\n  \
                  vouch gc --db /srv/db --drop-tag v1.0      forget a tag, then what only it kept\n  \
                  vouch gc --db /srv/db --repair             build a damaged index anew first\n  \
                  vouch gc --db /srv/db --drop-unfinished    and what an interrupted publication or pull has stored\n  \
                  vouch gc --db /srv/db --grace 0s           free all space now; clients with an earlier manifest get errors\n  \
                  vouch gc --db s3://trees/tools --grace 7d  keep objects of earlier manifests for a week\n\n\
                  Data of an interrupted publication or pull stays for its next run, for a week after it stopped. One that runs is waited for."
)]
pub(crate) struct Args {
    /// The database, a directory or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DB")]
    db: PathBuf,
    #[command(flatten)]
    keep: KeepArgs,
    /// First remove this tag; may be repeated.
    #[arg(long, value_name = "TAG")]
    drop_tag: Vec<String>,
    /// First rebuild the index from the packs and hash every frame: for a database whose index
    /// `vouch verify --db` reports as damaged.
    #[arg(long)]
    repair: bool,
    /// Free what an interrupted publication or pull has stored; its next run stores it again.
    #[arg(long)]
    drop_unfinished: bool,
    /// Time for which unused files stay, for readers of an earlier manifest: web caches have it for
    /// a minute. A later run removes them. The default is 10m in a directory, and 24h in a bucket.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration_or_zero)]
    grace: Option<Duration>,
    /// Length of new packs; give the same as at publication.
    #[arg(long, value_name = "SIZE", value_parser = size::parse_pack_len)]
    pack_size: Option<u32>,
    /// Time to wait for another writer of the database.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = when::parse_duration)]
    wait: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let started = Instant::now();
    let bar = progress::spinner(global, "collecting");
    let tick = |now: Progress| bar.set_message(progress::stage_text(&now));
    let unfinished_age_max = if args.drop_unfinished { Duration::ZERO } else { UNFINISHED_AGE_MAX };
    let options = || CollectOptions {
        lock_wait: args.wait,
        grace: args.grace,
        unfinished_age_max,
        pack_len: args.pack_size,
        progress: Some(&tick),
        ..CollectOptions::default()
    };
    let mut repaired = None;
    if args.repair {
        repaired = Some(Database::repair(&args.db, &options())?);
    }
    let mut forgotten = 0;
    let policy = args.keep.retention();
    if policy.is_some() || !args.drop_tag.is_empty() {
        let writer = Database::open_write(
            &args.db,
            WriteOptions { lock_wait: args.wait, adopt: false, ..WriteOptions::default() },
        )?;
        for tag in &args.drop_tag {
            if !writer.drop_tag(tag)? {
                return Err(Failure::not_found(
                    format_args!("--drop-tag {tag}"),
                    "no kept revision has this tag",
                )
                .cure("`vouch log --db` lists them"));
            }
        }
        if let Some(policy) = policy {
            forgotten = writer.retain(policy)?;
        }
    }
    let done = Database::collect(&args.db, options())?;
    bar.finish_and_clear();
    output::warn_if_revoked(&Database::open_read(&args.db)?);
    let dropped = done.bytes_before.saturating_sub(done.bytes_after);
    if args.json {
        return output::json(&Report {
            frames_indexed_anew: repaired.map(|repaired| repaired.frames),
            revisions_forgotten: forgotten as u64,
            frames_kept: done.live_frames,
            frames_dropped: done.dropped_frames,
            bytes_before: done.bytes_before,
            bytes_after: done.bytes_after,
            bytes_moved: done.moved_bytes,
            files_removed: done.removed_files,
            files_waiting: done.waiting_files,
            unfinished_bytes_removed: done.unfinished_removed.len,
            unfinished_bytes_waiting: done.unfinished_waiting.len,
            seconds: started.elapsed().as_secs_f64(),
        });
    }
    let anew = repaired.map_or_else(String::new, |repaired| {
        format!("index rebuilt: {} frames in {}\n", repaired.frames, output::bytes(repaired.bytes))
    });
    let waiting = match done.waiting_files {
        0 => String::new(),
        count => format!(", {count} stay for readers of an earlier manifest until a later run"),
    };
    let of_run = |verb: &str, found: FileTotals, more: &str| match found.count {
        0 => String::new(),
        count => format!(
            "{verb} {count} packs, {}, of an interrupted publication or pull{more}\n",
            output::bytes(found.len)
        ),
    };
    let unfinished = of_run("removed", done.unfinished_removed, "")
        + &of_run(
            "left",
            done.unfinished_waiting,
            ", for its next run; --drop-unfinished removes them",
        );
    output::text(&format!(
        "{anew}kept {} frames in {}, dropped {} frames and {} in {:.1} s\nremoved {} unused files{waiting}\n{unfinished}",
        done.live_frames,
        output::bytes(done.bytes_after),
        done.dropped_frames,
        output::bytes(dropped),
        started.elapsed().as_secs_f64(),
        done.removed_files
    ))
}

/// Older interrupted pulls and publications count as abandoned.
const UNFINISHED_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    frames_indexed_anew: Option<u64>,
    revisions_forgotten: u64,
    frames_kept: u64,
    frames_dropped: u64,
    bytes_before: u64,
    bytes_after: u64,
    bytes_moved: u64,
    files_removed: u64,
    files_waiting: u64,
    unfinished_bytes_removed: u64,
    unfinished_bytes_waiting: u64,
    seconds: f64,
}
