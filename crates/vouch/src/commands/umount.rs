use std::path::PathBuf;

use vouch_tree_mount::MountError;

use crate::cli::Global;
use crate::exit::{Failure, Outcome};

/// Unmount a tree mounted by `vouch mount`; also clears a mount whose process is dead.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch umount /mnt\n\nRefuses mounts of other programs.")]
pub(crate) struct Args {
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    match vouch_tree_mount::unmount_point(&args.point) {
        // A mount's cure is to create it.
        Err(MountError::NoPoint { path }) => Err(Failure::not_found(path.display(), "no such directory, so no tree is mounted there")),
        unmounted => Ok(unmounted?),
    }
}
