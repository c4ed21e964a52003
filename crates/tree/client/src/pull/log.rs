//! Copies the log of revisions, and verifies that it continues the one in the database.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use vouch_log::append::LogFile;
use vouch_log::evidence::{LogEvidence, is_evidence};
use vouch_log::merkle::{Hash, verify_inclusion};
use vouch_log::revision::revision_entry;
use vouch_log::tile::new_files;
use vouch_tree_store::{Writer, open_log};

use super::PullOptions;
use super::database::blocking;
use crate::client::Client;
use crate::fork::{Fork, ForkSide, check_log_head, consistency_file};
use crate::http::DatabaseFiles;
use crate::http::url::is_url;
use crate::revision::Revision;
use crate::{Error, Result, Tree};

/// Of a source's files at once: a bundle of entries has 17 MiB at most.
const FETCHES_MAX: usize = 4;

/// Stores the files of the log with this revision, and returns the evidence to commit. `None` if
/// the tree has no log, or the database has the evidence already. A replica without the log's files
/// is only warned of: clients who demand the log then ask another mirror.
pub(super) async fn pull_log(
    tree: &Tree,
    revision: &Revision,
    writer: &Arc<Writer>,
    options: &PullOptions,
) -> Result<Option<LogEvidence>> {
    let Some(http) = &options.http else { return Ok(None) };
    let mut locations = options.tree.replicas.clone();
    if !options.tree.only_replicas {
        locations.push(crate::mirrors::location_of_name(tree.name()));
    }
    tree.learn_mirrors(false).await;
    for replica in tree.replicas() {
        let location = replica.location(http);
        if !locations.contains(&location) {
            locations.push(location);
        }
    }
    let mut failure = None;
    for location in locations {
        let mut http = http.clone();
        if !is_url(&location) {
            http.proxies = vec!["DIRECT".to_owned()];
        }
        let pulled = match DatabaseFiles::new(&location, tree.hostid(), &http) {
            Ok(files) => pull_from(tree.client(), &files, revision, writer).await,
            Err(error) => Err(error),
        };
        match pulled {
            Ok(Found::Evidence(evidence)) => return Ok(Some(*evidence)),
            Ok(Found::Nothing) => return Ok(None),
            Ok(Found::OtherRevision) => {}
            Err(error @ Error::ForkedLog { .. }) => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    if let Some(error) = failure {
        tracing::warn!(tree = %tree.name(), "the log of revisions is not pulled, so this mirror serves no proof of the newest one: {error}");
    }
    Ok(None)
}

enum Found {
    Evidence(Box<LogEvidence>),
    /// The tree has no log, or the database has its evidence.
    Nothing,
    OtherRevision,
}

async fn pull_from(
    client: &Client,
    files: &DatabaseFiles,
    revision: &Revision,
    writer: &Arc<Writer>,
) -> Result<Found> {
    let (_, view) = files.manifest().await?;
    if view.head() != Some(&revision.signed[..]) {
        return Ok(Found::OtherRevision);
    }
    let Some(bytes) = view.statements().iter().find(|found| is_evidence(found)) else {
        return Ok(Found::Nothing);
    };
    let theirs = LogEvidence::from_statement(bytes, &revision.signed)
        .map_err(|error| lied(files, &error))?;
    check_evidence(&theirs, writer, &revision.signed).map_err(|what| lied(files, &what))?;
    let ours = writer.evidence()?;
    let head = theirs.proof.checkpoint.checkpoint().clone();
    let known = ours.as_ref().map(|ours| ours.proof.checkpoint.checkpoint());
    let known_size = known.map_or(0, |known| known.size);
    let has_more = ours.as_ref().is_none_or(|ours| is_better(&theirs, ours));
    if known == Some(&head) && !has_more {
        return Ok(Found::Nothing);
    }
    let fetched = stream::iter(new_files(known_size, head.size)).map(|id| async move {
        let bytes = files.log_file(&id).await?;
        Ok::<_, Error>(LogFile { id, bytes: bytes.to_vec() })
    });
    fetched
        .buffered(FETCHES_MAX)
        .try_for_each(|file| {
            let writer = Arc::clone(writer);
            blocking(client, move || Ok(writer.put_log_file(&file)?))
        })
        .await?;
    let (writer, source) = (Arc::clone(writer), files.url());
    blocking(client, move || verify_log(&writer, ours, theirs, &source)).await
}

/// About the same head: a newer certificate, or more cosignatures.
fn is_better(theirs: &LogEvidence, ours: &LogEvidence) -> bool {
    let rank = |evidence: &LogEvidence| {
        (evidence.cert.serial(), evidence.proof.checkpoint.note().signatures().len())
    };
    rank(theirs) > rank(ours)
}

fn check_evidence(
    evidence: &LogEvidence,
    writer: &Writer,
    signed: &[u8],
) -> std::result::Result<(), &'static str> {
    check_log_head(evidence, &writer.hostid())?;
    let (proof, leaf) = (&evidence.proof, Hash::leaf(&revision_entry(signed)));
    let head = proof.checkpoint.checkpoint();
    verify_inclusion(leaf, proof.index, head.size, &proof.hashes, head.root)
        .map_err(|_| "the log's proof is not about the newest revision")
}

/// Reads back all that is new, and compares it with the head that the database has.
fn verify_log(
    writer: &Writer,
    ours: Option<LogEvidence>,
    theirs: LogEvidence,
    source: &str,
) -> Result<Found> {
    let lied =
        |error: &dyn std::fmt::Display| Error::Lied { reasons: format!("{source}: {error}") };
    let (files, head) = (writer.log_files(), theirs.proof.checkpoint.checkpoint());
    let known = ours.as_ref().map(|ours| ours.proof.checkpoint.checkpoint().clone());
    if let (Some(ours), Some(known)) = (&ours, &known) {
        // The longer log has the shorter one, or the log's key has signed two.
        let (mut longer, short) = if head.size <= known.size {
            let log = open_log(files.clone(), &ours.proof.checkpoint)
                .map_err(|error| Error::Damaged { what: error.to_string() })?;
            (log, head)
        } else {
            let log =
                open_log(files.clone(), &theirs.proof.checkpoint).map_err(|error| lied(&error))?;
            (log, known)
        };
        if longer.root_at(short.size).map_err(|error| lied(&error))? != short.root {
            let consistency = match head.size == known.size {
                true => Vec::new(),
                false => consistency_file(&mut longer, short.size).map_err(|error| lied(&error))?,
            };
            return Err(save_fork(writer, ours, &theirs, consistency)?);
        }
        if head.size < known.size {
            return Ok(Found::Nothing);
        }
    }
    let mut log = open_log(files, &theirs.proof.checkpoint).map_err(|error| lied(&error))?;
    let mut index = known.map_or(0, |known| known.size);
    while index < head.size {
        let (first, entries) = log.bundle(index).map_err(|error| lied(&error))?;
        index = first + entries.len() as u64;
    }
    Ok(Found::Evidence(Box::new(theirs)))
}

/// Both signed heads, for a third party.
fn save_fork(
    writer: &Writer,
    ours: &LogEvidence,
    theirs: &LogEvidence,
    consistency: Vec<u8>,
) -> Result<Error> {
    let dir = writer.path().join("fork");
    let side =
        |evidence: &LogEvidence| ForkSide { signed: Vec::new(), evidence: Some(evidence.clone()) };
    let fork = Fork { ours: side(ours), theirs: side(theirs), consistency };
    fork.save(&dir, &writer.hostid()).map_err(|error| Error::local("write", &dir, error))?;
    let size = |evidence: &LogEvidence| evidence.proof.checkpoint.checkpoint().size;
    Ok(Error::ForkedLog { dir, ours: size(ours), theirs: size(theirs) })
}

fn lied(files: &DatabaseFiles, what: &dyn std::fmt::Display) -> Error {
    Error::Lied { reasons: format!("{}: {what}", files.url()) }
}
