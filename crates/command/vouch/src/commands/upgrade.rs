use std::path::PathBuf;

use vouch_mount_service::request_upgrade;

use crate::cli::Global;
use crate::exit::Outcome;
use crate::output;

/// Replace the process of a running mount by one of the installed program.
///
/// Open files, running programs and directories in use notice nothing; requests wait for some
/// milliseconds. If the new process cannot continue, the old one does, and the command says why.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch upgrade /mnt\n  systemctl reload 'vouch-mount@*'     all mounts of this machine's units\n\n\
                        The mount must have a supervisor: it was not mounted with --no-supervisor, nor by a version before 0.2."
)]
pub(crate) struct Args {
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let device = vouch_tree_mount::mount_device(&args.point)?;
    let pause_ms = request_upgrade(&args.point, &device)?.as_secs_f64() * 1000.0;
    output::text(&format!("upgraded {}; requests waited {pause_ms:.1} ms\n", args.point.display()))
}
