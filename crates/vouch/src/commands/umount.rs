use std::path::PathBuf;

use crate::cli::Global;
use crate::exit::Outcome;

/// Unmount a tree mounted by `vouch mount`; also clears a mount whose process is dead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch umount /mnt\n\nRefuses mounts of other programs.")]
pub(crate) struct Args {
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    Ok(vouch_tree_mount::unmount_point(&args.point)?)
}
