use std::io::Write as _;
use std::path::{Path, PathBuf};

use vouch_audit::proof::Proof;
use vouch_audit::trail::{prove, prove_under_seal, read_checkpoint};
use vouch_audit_pipeline::trail_log::{LOG_DIRECTORY, LoggedSeal, WitnessedLog};
use vouch_log::proof::{EXTRA_LEN_MAX, TlogProof};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::when;

/// Write the proof that one record is in the trail.
///
/// The proof holds the record, its path to the root of its segment's Merkle tree, the seal over
/// that root, and all seals since the trail's first key: 4,012 bytes each, or 248 by a key that is
/// Ed25519 alone. With a checkpoint that the other party has, it holds only the seals since. A proof
/// has at most 256 MiB. It reveals nothing about other records. `vouch audit check-proof` needs
/// nothing else.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit prove --out 4711.proof /var/lib/vouch/audit 4711\n  \
                  vouch audit check-proof --public trail.pub 4711.proof\n  \
                  vouch audit prove --tlog --policy trail.policy --out 4711.tlog-proof /var/lib/vouch/audit 4711"
)]
pub(crate) struct Args {
    /// Directory of the trail.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Sequence number of the record: the first word of a search result.
    #[arg(value_name = "SEQ")]
    seq: u64,
    /// New file for the proof.
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Leave out the seals before this checkpoint, which the other party has.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Write a proof of C2SP (tlog-proof), which stock tools check offline: that the log of the trail
    /// has the seal over the record. The extra data has the record and its path to the seal. The
    /// seal's entry in the log, which such tools take as the content, is written to FILE.entry.
    #[arg(long, conflicts_with = "checkpoint", requires = "policy")]
    tlog: bool,
    /// The policy (C2SP tlog-policy) that the log's head satisfies now.
    #[arg(long, value_name = "FILE", requires = "tlog")]
    policy: Option<PathBuf>,
    /// Directory of the log, if not `log` in the trail's directory.
    #[arg(long, value_name = "DIR", requires = "tlog")]
    log: Option<PathBuf>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let since = args
        .checkpoint
        .as_ref()
        .map(|path| read_checkpoint(path).at(path.display()))
        .transpose()?;
    let proof = match &args.policy {
        None => prove(&args.directory, args.seq, since.as_ref()),
        Some(_) => prove_under_seal(&args.directory, args.seq),
    };
    let proof = proof.at(args.directory.display())?;
    let proof = proof.ok_or_else(|| {
        let cure = "wait for the next seal if the record is new, or give an older checkpoint";
        Failure::not_found(
            format!("record {}", args.seq),
            "is not in the trail, or not sealed since the checkpoint",
        )
        .cure(cure)
    })?;
    match &args.policy {
        None => write_new(&args.out, &proof.encode()),
        Some(policy) => write_tlog_proof(&args, policy, proof),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> Outcome {
    std::fs::File::create_new(path).and_then(|mut file| file.write_all(bytes)).at(path.display())
}

/// The log vouches for the seal, in place of the seals before it.
fn write_tlog_proof(args: &Args, policy: &Path, proof: Proof) -> Outcome {
    let policy = vouch_tree_client::read_policy(policy)?;
    let path = args.log.clone().unwrap_or_else(|| args.directory.join(LOG_DIRECTORY));
    let log = WitnessedLog::open(&path, &policy, when::now_s())
        .map_err(|error| Failure::refused(path.display(), error))?;
    let seal = proof.seals.last().ok_or_else(|| Failure::not_found("the record", "has no seal"))?;
    let in_log = log.prove(seal)?.ok_or_else(|| {
        Failure::not_found(format!("seal {}", seal.epoch), "is not in the log yet")
            .cure("run `vouch audit log`, or wait for its next look")
    })?;
    let extra = proof.encode();
    if extra.len() > EXTRA_LEN_MAX {
        let len = extra.len();
        let why = format!("needs {len} bytes of extra data, and a tlog-proof has {EXTRA_LEN_MAX}");
        return Err(Failure::input(format!("record {}", args.seq), why).cure("leave out --tlog"));
    }
    let in_log = TlogProof { extra: Some(extra), ..in_log };
    let mut entry = args.out.clone().into_os_string();
    entry.push(".entry");
    write_new(entry.as_ref(), &LoggedSeal::of(seal).entry())?;
    write_new(&args.out, in_log.to_text().as_bytes())
}
