use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;

use serde::Serialize;
use vouch_tree_client::{PullOptions, PullPhase, PullProgress, PullReport};

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{Failure, Outcome};
use crate::keep_options::KeepArgs;
use crate::tree_path::TreePath;
use crate::{interrupt, output, progress, size};

/// Update a replica's database from other replicas.
///
/// Fetches only what is missing, verifies everything, and makes the new revision visible when it is
/// complete. Needs no key. Continues after an interruption.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch pull @pub.example.org,HOSTID --db /srv/mirror\n  \
                  vouch pull @pub.example.org,HOSTID --db /srv/mirror --watch --keep 10     a mirror that stays current\n\n\
                  Serve it by `vouch serve --db /srv/mirror`, at the same time if you like.")]
pub(crate) struct Args {
    /// The tree.
    #[arg(value_name = "NAME")]
    name: OsString,
    /// The database, a directory or s3://BUCKET/PREFIX; created if missing.
    #[arg(long, value_name = "DB")]
    db: PathBuf,
    #[command(flatten)]
    keep: KeepArgs,
    /// Keep running, and fetch each new revision.
    #[arg(long)]
    watch: bool,
    /// Do not free the space of dropped revisions; `vouch gc` does it later.
    #[arg(long)]
    no_gc: bool,
    /// Length of new packs [default: 448K, which web caches keep; 1/4096 of databases over 1.75G, up to
    /// 32M; 32M in buckets].
    #[arg(long, value_name = "SIZE", value_parser = size::parse_pack_len)]
    pack_size: Option<u32>,
    /// Most bytes requested and not yet received.
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    in_flight: u64,
    /// Print the result as JSON; with --watch, one object on each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        self.watch
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let path = TreePath::parse(&args.name)?;
    if !path.path.is_empty() {
        return Err(Failure::usage("NAME", "a whole tree is pulled, not a path in it"));
    }
    client_options::block_on(pull(&args, &path, global))
}

async fn pull(args: &Args, path: &TreePath, global: &Global) -> Outcome {
    let client = args.client.client().await?;
    let options = PullOptions {
        tree: args.client.tree_options(&path.name),
        keep: args.keep.retention(),
        in_flight_bytes: args.in_flight,
        collect: !args.no_gc,
        pack_len: args.pack_size,
        http: Some(args.client.http_options()?),
        ..PullOptions::new(args.db.clone())
    };
    let bar = progress::spinner(global, "pulling");
    let drawn = bar.clone();
    let draw = move |now: PullProgress| drawn.set_message(progress_text(&now));
    if !args.watch {
        let report = vouch_tree_client::pull(&client, &path.name, &options, &draw).await;
        bar.finish_and_clear();
        return print(args, &report?);
    }
    let failed = Mutex::new(None);
    let done = |outcome: Result<PullReport, vouch_tree_client::Error>| match outcome {
        Ok(report) if report.was_current => {}
        Ok(report) => {
            if let Err(failure) = bar.suspend(|| print(args, &report)) {
                failed
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .get_or_insert(failure);
            }
        }
        Err(error) => tracing::warn!(%error, "pull failed; trying again later"),
    };
    let stop = std::sync::Arc::new(tokio::sync::Notify::new());
    let notify = stop.clone();
    let _taken = interrupt::stop_gracefully(move || notify.notify_one());
    let outcome = tokio::select! {
        outcome = vouch_tree_client::pull_watch(&client, &path.name, &options, &draw, &done) => outcome.map_err(Failure::from),
        () = stop.notified() => Err(Failure::interrupted()),
    };
    bar.finish_and_clear();
    match failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => outcome,
    }
}

fn progress_text(now: &PullProgress) -> String {
    let phase = match now.phase {
        PullPhase::Connecting => "connecting",
        PullPhase::Frames => "fetching",
        PullPhase::History => "fetching history",
        PullPhase::Commit => "committing",
        PullPhase::Collect => "collecting garbage",
    };
    format!(
        "{phase}: {} of {} frames, {}, {} already present",
        now.frames_done,
        now.frames_known,
        output::bytes(now.bytes),
        now.frames_present
    )
}

fn print(args: &Args, report: &PullReport) -> Outcome {
    let row = Row {
        revision: report.revision,
        was_current: report.was_current,
        new_frames: report.new_frames,
        new_bytes: report.new_bytes,
        present_frames: report.present_frames,
        history_frames: report.history_frames,
        collected_bytes: report.collected_bytes,
        seconds: report.elapsed.as_secs_f64(),
    };
    if args.json {
        return output::json_line(&row);
    }
    if report.was_current {
        return output::text(&format!("revision {} is already present\n", report.revision));
    }
    output::text(&format!(
        "revision {}: {} new frames, {}, {} already present, {} collected, {:.1} s\n",
        report.revision,
        report.new_frames,
        output::bytes(report.new_bytes),
        report.present_frames,
        output::bytes(report.collected_bytes),
        row.seconds
    ))
}

#[derive(Serialize)]
struct Row {
    revision: u64,
    was_current: bool,
    new_frames: u64,
    new_bytes: u64,
    present_frames: u64,
    history_frames: u64,
    collected_bytes: u64,
    seconds: f64,
}
