use std::io::Write as _;
use std::path::PathBuf;

use vouch_audit::trail::{prove, read_checkpoint};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};

/// Write the proof that one record is in the trail.
///
/// The proof holds the record, its path to the root of its segment's Merkle tree, the seal over
/// that root, and all seals since the trail's first key, 248 bytes each; with a checkpoint that the
/// other party has, only the seals since. The proof reveals nothing about other records. `vouch
/// audit check-proof` needs nothing else.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit prove --out 4711.proof /var/lib/vouch/audit 4711\n  \
                  vouch audit check-proof --public trail.pub 4711.proof"
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
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let since = args
        .checkpoint
        .as_ref()
        .map(|path| read_checkpoint(path).at(path.display()))
        .transpose()?;
    let proof = prove(&args.directory, args.seq, since.as_ref()).at(args.directory.display())?;
    let proof = proof.ok_or_else(|| {
        let cure = "wait for the next seal if the record is new, or give an older checkpoint";
        Failure::not_found(
            format!("record {}", args.seq),
            "is not in the trail, or not sealed since the checkpoint",
        )
        .cure(cure)
    })?;
    std::fs::File::create_new(&args.out)
        .and_then(|mut file| file.write_all(&proof.encode()))
        .at(args.out.display())
}
