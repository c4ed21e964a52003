use std::path::PathBuf;

use vouch_audit::Record;
use vouch_audit::proof::{Anchor, Proof};
use vouch_audit::trail::read_checkpoint;

use super::{show, verify};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::output;

/// Check the proof that a record is in a trail, and show the record.
///
/// The check needs the proof and one trusted item: the trail's first public key, or a checkpoint
/// kept elsewhere. Exits with 5 if the proof is invalid.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("trusted").required(true)), after_help = "Examples:\n  vouch audit check-proof --public trail.pub 4711.proof\n  \
                  vouch audit check-proof --checkpoint /media/kept/monday 4711.proof")]
pub(crate) struct Args {
    /// The proof.
    #[arg(value_name = "FILE")]
    proof: PathBuf,
    /// The trail's first public key: 64 hexadecimal digits, or a file that holds them.
    #[arg(long, value_name = "KEY", group = "trusted")]
    public: Option<String>,
    /// A checkpoint of the trail that was kept elsewhere.
    #[arg(long, value_name = "FILE", group = "trusted")]
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    form: show::Form,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let anchor = match (&args.public, &args.checkpoint) {
        (Some(public), _) => Anchor::Key(verify::public(public)?),
        (None, Some(path)) => {
            Anchor::Checkpoint(Box::new(read_checkpoint(path).at(path.display())?))
        }
        (None, None) => {
            return Err(Failure::usage(
                "--public",
                "give what is trusted: --public or --checkpoint",
            ));
        }
    };
    let what = args.proof.display();
    let proof = Proof::decode(&std::fs::read(&args.proof).at(what)?)
        .map_err(|error| Failure::input(args.proof.display(), error))?;
    let body =
        proof.check(&anchor).map_err(|error| Failure::refused(args.proof.display(), error))?;
    let mut scratch = Vec::new();
    let record = Record::decode(body, &mut scratch)
        .map_err(|error| Failure::input(args.proof.display(), error))?;
    output::text(&args.form.of(&record, None))
}
