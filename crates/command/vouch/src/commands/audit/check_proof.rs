use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use vouch_audit::Record;
use vouch_audit::proof::{Anchor, PROOF_LEN_MAX, Proof};
use vouch_audit::trail::read_checkpoint;
use vouch_audit_pipeline::trail_log::LoggedSeal;
use vouch_log::merkle::Hash;
use vouch_log::proof::{TLOG_PROOF_LEN_MAX, TlogProof};
use vouch_log::trail::parse_trail_origin;

use super::{show, verify};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::{key_directory as keys, output, when};

/// Check the proof that a record is in a trail, and show the record.
///
/// The check needs the proof and one trusted item: the trail's first public key, a checkpoint kept
/// elsewhere, or the policy of the log's witnesses. Exits with 5 if the proof is invalid.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("trusted").required(true)), after_help = "Examples:\n  vouch audit check-proof --public trail.pub 4711.proof\n  \
                  vouch audit check-proof --checkpoint /media/kept/monday 4711.proof\n  \
                  vouch audit check-proof --policy trail.policy 4711.tlog-proof")]
pub(crate) struct Args {
    /// The proof, at most 256 MiB. The check takes twice its length in memory.
    #[arg(value_name = "FILE")]
    proof: PathBuf,
    /// The trail's first public key: 64 hexadecimal digits, or a file that holds them.
    #[arg(long, value_name = "KEY", group = "trusted")]
    public: Option<String>,
    /// A checkpoint of the trail that was kept elsewhere.
    #[arg(long, value_name = "FILE", group = "trusted")]
    checkpoint: Option<PathBuf>,
    /// A policy (C2SP tlog-policy) whose quorum has cosigned the log of the trail, for a proof by
    /// `vouch audit prove --tlog`.
    #[arg(long, value_name = "FILE", group = "trusted")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    form: show::Form,
}

/// The record's proof in a tlog-proof, and the seal that the log vouches for.
fn open_tlog_proof(args: &Args, policy: &Path) -> Outcome<(Anchor, Proof)> {
    let policy = vouch_tree_client::read_policy(policy)?;
    let what = args.proof.display();
    let bytes = keys::read_limited(&args.proof, TLOG_PROOF_LEN_MAX)?;
    let in_log = TlogProof::parse(&bytes).map_err(|error| Failure::input(&what, error))?;
    let extra = in_log.extra.as_deref().unwrap_or_default();
    let proof = Proof::decode(extra).map_err(|error| Failure::input(&what, error))?;
    let [seal] = &proof.seals[..] else {
        return Err(Failure::input(&what, "has not one seal"));
    };
    if parse_trail_origin(&in_log.checkpoint.checkpoint().origin).is_none() {
        return Err(Failure::refused(&what, "the checkpoint is of no log of trails"));
    }
    in_log
        .verify(Hash::leaf(&LoggedSeal::of(seal).entry()), &policy, &[], when::now_s())
        .map_err(|error| Failure::refused(&what, error))?;
    Ok((Anchor::Checkpoint(Box::new(seal.clone())), proof))
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let (anchor, proof) = open(&args)?;
    let body =
        proof.check(&anchor).map_err(|error| Failure::refused(args.proof.display(), error))?;
    let mut scratch = Vec::new();
    let record = Record::decode(body, &mut scratch)
        .map_err(|error| Failure::input(args.proof.display(), error))?;
    output::text(&args.form.of(&record, None))
}

fn open(args: &Args) -> Outcome<(Anchor, Proof)> {
    if let Some(policy) = &args.policy {
        return open_tlog_proof(args, policy);
    }
    let anchor = match (&args.public, &args.checkpoint) {
        (Some(public), _) => Anchor::Key(verify::public(public)?),
        (None, Some(path)) => {
            Anchor::Checkpoint(Box::new(read_checkpoint(path).at(path.display())?))
        }
        (None, None) => {
            return Err(Failure::usage(
                "--public",
                "give what is trusted: --public, --checkpoint or --policy",
            ));
        }
    };
    let what = args.proof.display();
    let mut bytes = Vec::new();
    let file = File::open(&args.proof).at(&what)?;
    file.take(PROOF_LEN_MAX as u64 + 1).read_to_end(&mut bytes).at(what)?;
    let proof =
        Proof::decode(&bytes).map_err(|error| Failure::input(args.proof.display(), error))?;
    Ok((anchor, proof))
}
