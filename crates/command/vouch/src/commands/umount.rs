use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use vouch_daemon::printable::printable;
use vouch_tree_mount::Holder;

use crate::cli::Global;
use crate::exit::Outcome;

/// Unmount a tree mounted by `vouch mount`; also clears a mount whose process is dead.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch umount /mnt\n\nRefuses mounts of other programs. A mount in use disappears at once and ends with its last user; a note names the processes."
)]
pub(crate) struct Args {
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let device = vouch_tree_mount::mount_device(&args.point)?;
    let users = vouch_tree_mount::users_of(&args.point);
    vouch_tree_mount::unmount_point(&args.point)?;
    for Holder { pid, command, path } in users {
        let (command, path) =
            (printable(command.as_bytes()), printable(path.as_os_str().as_bytes()));
        note(format_args!(
            "process {pid} ({command}) still uses {path}; the mount's process ends when the last file is closed"
        ));
    }
    for Holder { pid, command, path } in vouch_tree_mount::namespaces_with(&device) {
        let (command, path) =
            (printable(command.as_bytes()), printable(path.as_os_str().as_bytes()));
        // No command to paste: programs and names in another user's namespace are that user's.
        note(format_args!(
            "still mounted at {path} in the mount namespace of process {pid} ({command}); the mount's process ends with the last process of this namespace"
        ));
    }
    Ok(())
}

/// The mount is gone here, so this is no failure.
fn note(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "vouch: umount: note: {text}");
}
