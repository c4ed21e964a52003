//! What `rollback` and `tag` share: they sign the content of a kept revision again.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use vouch_tree_publish::{Republication, Republished, Signer, republish};
use vouch_tree_store::{Database, Revision, WriteOptions, Writer};

use crate::exit::{Failure, Outcome};
use crate::key_directory as keys;
use crate::passphrase::PassphraseArgs;
use crate::witness_options::{WitnessArgs, visibility};
use crate::{log_keys, output, when};

#[derive(Debug, clap::Args)]
pub(crate) struct RepublishArgs {
    /// The database, a directory or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "DB")]
    db: PathBuf,
    /// Directory with signing.key, signing.cert, and log.key and log.cert for the log of revisions.
    #[arg(long, value_name = "KEYDIR")]
    keys: PathBuf,
    /// Validity of the new revision; the default is that of the newest one.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration)]
    duration: Option<Duration>,
    /// Text for `vouch log`, signed with the revision.
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
    /// Time to wait for another writer of the database.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = when::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    passphrase: PassphraseArgs,
    #[command(flatten)]
    witnesses: WitnessArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl RepublishArgs {
    pub(crate) fn open(&self) -> Outcome<Writer> {
        Ok(Database::open_write(
            &self.db,
            WriteOptions { lock_wait: self.wait, ..WriteOptions::default() },
        )?)
    }

    /// `of`: a number or a tag. `None`: so many revisions before the newest one.
    pub(crate) fn find(&self, writer: &Writer, of: Option<&str>, back: usize) -> Outcome<u64> {
        let revisions = writer.revisions();
        let found = match of {
            None => revisions.iter().rev().nth(back),
            Some(of) => revisions.iter().rev().find(|revision| is_called(revision, of)),
        };
        found.map(|revision| revision.number).ok_or_else(|| {
            let what =
                of.map_or_else(|| "an older revision".to_owned(), |of| format!("revision {of}"));
            Failure::not_found(what, "the database does not keep it")
                .cure("`vouch log --db` lists the revisions")
        })
    }

    pub(crate) fn run(
        &self,
        writer: &Writer,
        of: u64,
        tag: Option<&str>,
        keeps_newest: bool,
    ) -> Outcome {
        let (key, cert) = keys::read_signing(&self.keys, &self.passphrase)?;
        let duration_s = self.duration.map(|duration| u32::try_from(duration.as_secs()));
        let duration_s = duration_s
            .transpose()
            .map_err(|_| Failure::usage("--duration", "longer than the format allows"))?;
        let message = self
            .message
            .clone()
            .or_else(|| (!keeps_newest).then(|| format!("rollback to revision {of}")));
        let (log, asking) = self.witnesses.attach(log_keys::read(&self.keys)?)?;
        let tag = tag.map(str::to_owned);
        let options = Republication {
            of,
            start: when::now_s(),
            duration_s,
            tag: tag.clone(),
            message,
            keeps_newest,
            log,
        };
        let Republished { revision, newest, expires, is_visible } =
            republish(writer, &Signer { key: &key, cert }, &options)?;
        let expires = when::utc(expires);
        let check = || asking.map_or(Ok(()), |asking| asking.check(newest));
        if self.json {
            let waits_for_witnesses = !is_visible;
            output::json(&Report {
                revision,
                waits_for_witnesses,
                content_of: of,
                newest,
                tag,
                expires,
            })?;
            return check();
        }
        let tagged = tag.map_or_else(String::new, |tag| format!(", tag {tag}"));
        let back = if newest == revision {
            String::new()
        } else {
            format!("; revision {newest} has the newest content")
        };
        output::text(&format!(
            "revision {revision} has the content of revision {of}{tagged}, until {expires}{back}{}\n",
            visibility(is_visible)
        ))?;
        check()
    }
}

fn is_called(revision: &Revision, of: &str) -> bool {
    revision.tag.as_deref() == Some(of) || of.parse() == Ok(revision.number)
}

#[derive(Serialize)]
struct Report {
    revision: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waits_for_witnesses: bool,
    content_of: u64,
    newest: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    expires: String,
}
