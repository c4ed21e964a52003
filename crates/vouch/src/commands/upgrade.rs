use std::fmt::Display;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::Global;
use crate::commands::mount::upgrade_socket;
use crate::exit::{At as _, Cause, Failure, Outcome};
use crate::output;

/// Replace the process of a running mount by one of the installed program.
///
/// Open files, running programs and directories in use notice nothing; requests wait for some
/// milliseconds. If the new process cannot continue, the old one does, and the command says why.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  vouch upgrade /mnt\n  systemctl reload 'vouch-mount@*'     all mounts of this machine's units\n\n\
                        The mount must have a supervisor: it was not mounted with --no-supervisor, nor by a version before 0.2.")]
pub(crate) struct Args {
    /// The mount point.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let device = vouch_tree_mount::mount_device(&args.point)?;
    let what = args.point.display();
    let socket = upgrade_socket::path(&device).at(&what)?;
    let mut stream = UnixStream::connect(&socket).map_err(|error| no_supervisor(&what, error))?;
    stream.set_read_timeout(Some(ANSWER_MAX)).at(&what)?;
    let mut answer = String::new();
    stream.by_ref().take(ANSWER_LEN_MAX).read_to_string(&mut answer).at(&what)?;
    match answer.trim_end().split_once(' ') {
        Some(("ok", pause)) => {
            let pause_ms = pause.parse::<u64>().unwrap_or(0) as f64 / 1000.0;
            output::text(&format!("upgraded {what}; requests waited {pause_ms:.1} ms\n"))
        }
        Some(("refused", why)) => {
            let why = io::Error::other(format!("the mount's process was not replaced, and goes on: {why}"));
            Err(Failure::new(what, Cause::Io(why)).cure("see its log"))
        }
        _ => Err(Failure::new(what, Cause::Io(io::Error::other("the supervisor ended without an answer"))).cure("see its log")),
    }
}

fn no_supervisor(what: &impl Display, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::new(what, Cause::Io(io::Error::other("no supervisor answers"))).cure("mount it again, without --no-supervisor")
        }
        _ => Failure::new(what, Cause::Io(error)).cure("only the user who mounted it, and root, can upgrade a mount"),
    }
}

/// Longer than the supervisor's own limits.
const ANSWER_MAX: Duration = Duration::from_secs(180);

const ANSWER_LEN_MAX: u64 = 4096;
