//! Entries of a transparency log, of a database or of a replica.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::revision::parse_revision_entry;
use vouch_tree::{HostId, TreeName};
use vouch_tree_client::{DatabaseFiles, RemoteLog, check_log_head, location_of_name};
use vouch_tree_store::Database;

use super::Args;
use crate::exit::{At as _, Failure, Outcome};
use crate::{output, when};
use vouch_daemon::printable::printable;

pub(super) fn of_database(args: &Args, db: &Path) -> Outcome {
    let snapshot = Database::open_read(db)?;
    let evidence = snapshot.evidence().ok_or_else(|| no_log(&db.display()))?;
    print(args, &snapshot.hostid(), &evidence, snapshot.log_files(), &db.display().to_string())?;
    output::warn_if_revoked(&snapshot);
    Ok(())
}

/// Of the first replica that answers: its log is verified, but another replica may have a longer
/// one.
pub(super) async fn of_tree(args: &Args, name: &TreeName) -> Outcome {
    let options = args.client.tree_options(name);
    let mut locations = options.replicas;
    if !options.only_replicas {
        locations.push(location_of_name(name));
    }
    let mut failure = None;
    for location in locations {
        let files = DatabaseFiles::new(&location, name.hostid(), &args.client.http_options()?)?;
        let view = match files.manifest().await {
            Ok((_, view)) => view,
            Err(error) => {
                failure = Some(error);
                continue;
            }
        };
        let found = view.statements().iter().find(|statement| is_evidence(statement));
        let bytes = found.ok_or_else(|| no_log(&files.url()))?;
        let evidence =
            LogEvidence::from_statement(bytes, view.head().unwrap_or_default()).at(files.url())?;
        let url = files.url();
        let remote = RemoteLog { files: &files, time_max: args.client.answer_max() };
        return tokio::task::block_in_place(|| print(args, name.hostid(), &evidence, remote, &url));
    }
    Err(failure.map_or_else(|| Failure::usage("--only-replicas", "needs --replica"), Failure::from))
}

fn no_log(what: &dyn std::fmt::Display) -> Failure {
    Failure::not_found(what, "the tree has no log of revisions")
        .cure("the publisher makes its key with `vouch certify`")
}

fn print(
    args: &Args,
    hostid: &HostId,
    evidence: &LogEvidence,
    source: impl TileSource,
    what: &str,
) -> Outcome {
    let damaged = |why: &dyn std::fmt::Display| Failure::input(what, format_args!("{why}"));
    check_log_head(evidence, hostid).map_err(|why| damaged(&why))?;
    let head = evidence.proof.checkpoint.checkpoint();
    let mut log = LogReader::open(source, head.size, head.root).map_err(|error| damaged(&error))?;
    let mut out = io::stdout().lock();
    if !args.json {
        let heads = ["ENTRY", "REVISION", "SIGNED", "CERTIFICATE", "SIGNING KEY", "TAG"];
        let [entry, revision, signed, certificate, key, tag] = heads;
        writeln!(out, "{entry:>8}  {revision:>8}  {signed:20}  {certificate:>11}  {key:16}  {tag}")
            .at("standard output")?;
    }
    let mut left = args.max_count.unwrap_or(usize::MAX);
    let mut end = head.size;
    while end > 0 && left > 0 {
        let (first, entries) = log.bundle(end - 1).map_err(|error| damaged(&error))?;
        for (entry, index) in entries.iter().rev().zip((first..end).rev()).take(left) {
            print_entry(args, hostid, &mut out, index, entry).at("standard output")?;
            left -= 1;
        }
        end = first;
    }
    Ok(())
}

fn print_entry(
    args: &Args,
    hostid: &HostId,
    out: &mut impl io::Write,
    index: u64,
    entry: &[u8],
) -> io::Result<()> {
    // Later versions may have other entries, and a thief may log anything.
    let signed = parse_revision_entry(entry).ok().map(|(signed, _)| signed);
    let opened = signed.and_then(|signed| Some((signed.open(hostid).ok()?, signed)));
    let Some((fsinfo, signed)) = opened else {
        return match args.json {
            true => writeln!(out, "{{\"index\":{index},\"revision\":null}}"),
            false => writeln!(out, "{index:>8}  no revision of this tree"),
        };
    };
    let cert = signed.cert();
    let mut key = cert.signing.hostid().to_string();
    key.truncate(16);
    if args.json {
        let row = Row {
            index,
            revision: fsinfo.revision,
            signed: when::utc(fsinfo.start),
            certificate: cert.serial,
            signing_key: key,
            tag: (!fsinfo.tag.is_empty()).then_some(&fsinfo.tag),
        };
        serde_json::to_writer(&mut *out, &row)?;
        return out.write_all(b"\n");
    }
    let line = format!(
        "{index:>8}  {:>8}  {:20}  {:>11}  {key:16}  {}",
        fsinfo.revision,
        when::utc(fsinfo.start),
        cert.serial,
        printable(fsinfo.tag.as_bytes())
    );
    writeln!(out, "{}", line.trim_end())
}

#[derive(Serialize)]
struct Row<'a> {
    index: u64,
    revision: u64,
    signed: String,
    certificate: u64,
    /// The first 16 characters of its hash, as in a HOSTID.
    signing_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a String>,
}
