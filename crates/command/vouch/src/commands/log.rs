mod entries;

use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::Serialize;
use vouch_tree::fsinfo::SignedFsinfo;
use vouch_tree::{FrameKind, Fsinfo, frame};
use vouch_tree_store::{Database, FrameSource as _};
use vouch_xdr::Xdr as _;

use crate::cli::Global;
use crate::client_options::{self, ClientArgs};
use crate::exit::{At as _, Failure, Outcome, forgive_closed_pipe};
use crate::tree_path::TreePath;
use crate::{output, when};
use vouch_daemon::printable::printable;

/// Show the revisions of a published tree, newest first.
///
/// Each revision contains the hash of the previous one, so a publisher can't deny or replace a
/// signed revision.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch log @pub.example.org,HOSTID\n  vouch log -n 5 --json @pub.example.org,HOSTID\n  vouch log --db /srv/db\n  vouch log --entries --db /srv/db      the transparency log, with the key of each revision"
)]
pub(crate) struct Args {
    /// The tree.
    #[arg(value_name = "NAME", required_unless_present = "db")]
    name: Option<std::ffi::OsString>,
    /// Show the revisions of this database (a directory or s3://BUCKET/PREFIX), instead of asking
    /// replicas.
    #[arg(long, value_name = "DB", conflicts_with = "name")]
    db: Option<PathBuf>,
    /// Show the entries of the tree's transparency log, verified: each revision that was ever
    /// published, and the key that signed it.
    #[arg(long)]
    entries: bool,
    /// Show at most this many.
    #[arg(long, short = 'n', value_name = "N")]
    max_count: Option<usize>,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let outcome = match (&args.db, &args.name) {
        (Some(db), _) if args.entries => entries::of_database(&args, db),
        (None, Some(name)) if args.entries => {
            let path = TreePath::parse(name)?;
            client_options::block_on(entries::of_tree(&args, &path.name))
        }
        (Some(db), _) => of_database(&args, db),
        (None, Some(name)) => {
            let path = TreePath::parse(name)?;
            client_options::block_on(of_tree(&args, &path))
        }
        (None, None) => Err(Failure::usage("NAME", "missing")),
    };
    forgive_closed_pipe(outcome)
}

async fn of_tree(args: &Args, path: &TreePath) -> Outcome {
    let client = args.client.client().await?;
    let tree = client.open(&path.name, &args.client.tree_options(&path.name)).await?;
    let mut history = tree.history();
    let mut shown = 0;
    while args.max_count.is_none_or(|max| shown < max) {
        match history.next().await {
            Some(Ok(revision)) => print(
                args,
                &revision.fsinfo,
                u64::try_from(revision.expires()).unwrap_or(u64::MAX),
                shown == 0,
            )
            .at("standard output")?,
            // Revisions that replicas have dropped are no failure.
            Some(Err(vouch_tree_client::Error::Missing { .. })) if shown > 0 => break,
            Some(Err(error)) => return Err(error.into()),
            None => break,
        }
        shown += 1;
    }
    Ok(())
}

fn of_database(args: &Args, db: &std::path::Path) -> Outcome {
    let snapshot = Database::open_read(db)?;
    let (hostid, iv) = (snapshot.hostid(), snapshot.iv());
    for (shown, revision) in
        snapshot.revisions().iter().rev().take(args.max_count.unwrap_or(usize::MAX)).enumerate()
    {
        let damaged = |why: &dyn std::fmt::Display| {
            Failure::input(db.display(), format_args!("revision {}: {why}", revision.number))
        };
        let stored =
            snapshot.get(&revision.fsinfo)?.ok_or_else(|| damaged(&"its fsinfo is missing"))?;
        let payload = frame::open(&iv, &revision.fsinfo, FrameKind::Fsinfo, &stored)
            .map_err(|error| damaged(&error))?;
        let signed = SignedFsinfo::from_xdr(&payload).at(db.display())?;
        let fsinfo = signed.open(&hostid).map_err(|error| damaged(&error))?;
        print(args, &fsinfo, fsinfo.end().min(signed.cert().not_after), shown == 0)
            .at("standard output")?;
    }
    output::warn_if_revoked(&snapshot);
    Ok(())
}

/// `end`: of the validity, which the certificate limits too.
fn print(args: &Args, fsinfo: &Fsinfo, end: u64, first: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let files = fsinfo.counts.files;
    if args.json {
        let row = Row {
            revision: fsinfo.revision,
            tag: (!fsinfo.tag.is_empty()).then_some(&fsinfo.tag),
            start: when::utc(fsinfo.start),
            end: when::utc(end),
            files: fsinfo.counts.files,
            directories: fsinfo.counts.directories,
            symlinks: fsinfo.counts.symlinks,
            others: fsinfo.counts.others,
            bytes: fsinfo.counts.bytes,
            message: fsinfo.message(),
        };
        serde_json::to_writer(&mut out, &row)?;
        return out.write_all(b"\n");
    }
    if first {
        writeln!(
            out,
            "{:>8}  {:20}  {:20}  {:>9}  {:>10}  TAG, MESSAGE",
            "REVISION", "SIGNED", "VALID UNTIL", "FILES", "BYTES"
        )?;
    }
    let size = output::bytes(fsinfo.counts.bytes);
    let line = format!(
        "{:>8}  {:20}  {:20}  {files:>9}  {size:>10}  {}",
        fsinfo.revision,
        when::utc(fsinfo.start),
        when::utc(end),
        tag_and_message(fsinfo)
    );
    writeln!(out, "{}", line.trim_end())
}

/// A message alone must not look like a tag.
fn tag_and_message(fsinfo: &Fsinfo) -> String {
    let tag = printable(fsinfo.tag.as_bytes());
    match fsinfo.message().filter(|text| !text.is_empty()) {
        Some(message) if tag.is_empty() => format!("\"{}\"", printable(message.as_bytes())),
        Some(message) => format!("{tag}  \"{}\"", printable(message.as_bytes())),
        None => tag,
    }
}

#[derive(Serialize)]
struct Row<'a> {
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a String>,
    start: String,
    end: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}
