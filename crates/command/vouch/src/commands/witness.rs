use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use vouch_tree_publish::{CosignedHead, cosign};
use vouch_tree_store::{Database, WriteOptions, Writer};

use crate::cli::Global;
use crate::exit::{Failure, Outcome};
use crate::witness_options::{TooFew, WitnessArgs, WitnessRequests, visibility};
use crate::{output, when};

/// Ask witnesses to cosign the newest revision of a database.
///
/// Adds their cosignatures to the proof that readers get, without a new revision. A revision that waits
/// for witnesses becomes visible when the quorum is there. Needs no key. Ends with exit code 10 if
/// cosignatures are missing.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch witness /srv/db                            the witnesses that the root key demands (`vouch certify --policy`)\n  \
                  vouch witness s3://trees/tools --policy policy   those of a file too\n  \
                  vouch witness /srv/db --witness 'w.example+09b1b6a2+BCk2... https://w.example'\n\n\
                  Readers take a newer cosignature as a sign that the revision is still the newest one. The unit vouch-witness@.timer runs this command each hour."
)]
pub(crate) struct Args {
    /// The database, a directory or s3://BUCKET/PREFIX.
    #[arg(value_name = "DB")]
    db: PathBuf,
    #[command(flatten)]
    witnesses: WitnessArgs,
    /// Time to wait for another writer of the database.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = when::parse_duration)]
    wait: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let options = WriteOptions { lock_wait: args.wait, ..WriteOptions::default() };
    let writer = Database::open_write(&args.db, options)?;
    let Some(asking) = asking(&args, &writer)? else {
        return Err(Failure::usage(args.db.display(), "no witnesses are known")
            .cure("name them with --policy or --witness, or certify a policy with URLs (`vouch certify --policy`)"));
    };
    let head = cosign(&writer, &|pending| asking.ask(pending))?;
    let head = head.expect("a database with evidence of its log has a revision");
    let report = Report::new(&head, &asking);
    match args.json {
        true => output::json(&report)?,
        false => output::text(&report.text())?,
    }
    asking.check(head.revision)
}

fn asking(args: &Args, writer: &Writer) -> Outcome<Option<WitnessRequests>> {
    let waiting = writer.pending()?.and_then(|pending| pending.revision.evidence);
    let Some(evidence) = waiting.map_or_else(|| writer.evidence(), |found| Ok(Some(*found)))?
    else {
        return Err(Failure::input(
            args.db.display(),
            "the tree has no log that witnesses could cosign",
        )
        .cure("`vouch certify` makes a key for a log; then publish"));
    };
    args.witnesses.asking(&evidence.cert, TooFew::Fail)
}

#[derive(Serialize)]
struct Report {
    revision: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    waits_for_witnesses: bool,
    log_entries: u64,
    /// Since then, no longer log had been shown to the quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    quorum_time: Option<String>,
    cosigned: Vec<Cosigned>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Cosigned {
    witness: String,
    time: String,
}

#[derive(Serialize)]
struct Missing {
    witness: String,
    url: String,
    why: String,
}

impl Report {
    fn new(head: &CosignedHead, asking: &WitnessRequests) -> Report {
        let missing = asking.result().map_or_else(Vec::new, |result| result.failures);
        let (cosigned, quorum_time) = asking.cosigned(&head.evidence);
        let cosigned =
            cosigned.into_iter().map(|(witness, time)| Cosigned { witness, time: when::utc(time) });
        let missing = missing.into_iter().map(|failure| Missing {
            witness: failure.name,
            url: failure.url,
            why: failure.why,
        });
        Report {
            revision: head.revision,
            waits_for_witnesses: !head.is_visible,
            log_entries: head.evidence.proof.checkpoint.checkpoint().size,
            quorum_time: quorum_time.map(when::utc),
            cosigned: cosigned.collect(),
            missing: missing.collect(),
        }
    }

    fn text(&self) -> String {
        let mut rows = vec![vec![
            "revision".to_owned(),
            format!("{}{}", self.revision, visibility(!self.waits_for_witnesses)),
        ]];
        rows.push(vec!["log".to_owned(), format!("{} entries", self.log_entries)]);
        let quorum = self.quorum_time.as_deref().unwrap_or("missing");
        rows.push(vec!["quorum".to_owned(), quorum.to_owned()]);
        for Cosigned { witness, time } in &self.cosigned {
            rows.push(vec!["cosigned".to_owned(), format!("{witness}, {time}")]);
        }
        output::table(&rows, &[])
    }
}
