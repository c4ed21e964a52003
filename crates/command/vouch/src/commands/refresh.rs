use std::path::PathBuf;

use vouch_mount_service::request_refresh;

use crate::cli::Global;
use crate::exit::Outcome;
use crate::output;

/// Show the newest revision in a running mount now, without waiting for --refresh.
///
/// Asks the replicas, updates open and cached files, and returns when the mount shows the revision.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch refresh /mnt\n\nA mount with --revision or --tag stays at its revision."
)]
pub(crate) struct Args {
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let device = vouch_tree_mount::mount_device(&args.point)?;
    let shown = request_refresh(&args.point, &device)?;
    output::text(&format!("{}: {shown}\n", args.point.display()))
}
