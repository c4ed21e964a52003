//! `vouch status`: the mounts, caches and services of this machine.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use vouch_daemon::status_client;
use vouch_diagnose::{MachineStatus, status_tables};

use crate::cli::Global;
use crate::exit::{Failure, Outcome};
use crate::{output, when};

/// Show the mounts, caches and services of this machine.
///
/// Asks each running `vouch mount`, `vouch serve`, `vouch gateway`, `vouch export`, `vouch csi` and `vouch jobs`
/// over its status socket in /run/vouch, or in $XDG_RUNTIME_DIR/vouch for a user's own. A socket answers its own user
/// and root only: root sees everything.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch status                 tables for people\n  vouch status --watch         the same, every 2 seconds\n  \
                  vouch status --json          everything that the daemons know\n  vouch status --metrics       metrics of one daemon or several, for Prometheus\n\n\
                  VOUCH_RUNTIME_DIR names another directory of sockets, for the daemons and for this command."
)]
pub(crate) struct Args {
    /// Print JSON; with --watch, one line each time.
    #[arg(long)]
    json: bool,
    /// Repeat, every 2 seconds or as given, until Ctrl-C.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = when::parse_duration)]
    watch: Option<Duration>,
    /// Print the metrics of the daemon at this socket.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["json", "watch"])]
    metrics: Option<PathBuf>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if let Some(socket) = &args.metrics {
        let metrics = status_client::metrics(socket)
            .map_err(|error| Failure::new(socket.display(), error))?;
        return output::text(&metrics);
    }
    let Some(interval) = args.watch else {
        let status = MachineStatus::read()?;
        return if args.json {
            output::json(&status)
        } else {
            output::text(&status_tables::all(&status, when::now_s()))
        };
    };
    let clears = io::stdout().is_terminal();
    loop {
        let status = MachineStatus::read()?;
        if args.json {
            output::json_line(&status)?;
        } else {
            let clear = if clears { CLEAR_SCREEN } else { "" };
            output::text(&format!("{clear}{}\n", status_tables::all(&status, when::now_s())))?;
        }
        std::thread::sleep(interval);
    }
}

/// Cursor home, erase the display (ECMA-48).
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
