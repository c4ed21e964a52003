use crate::cli::Global;
use crate::exit::Outcome;
use crate::output;

/// Print the version, as `--version` does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch version")]
pub(crate) struct Args {}

pub(crate) fn run(_: Args, _: &Global) -> Outcome {
    output::text(concat!("vouch ", env!("CARGO_PKG_VERSION"), "\n"))
}
