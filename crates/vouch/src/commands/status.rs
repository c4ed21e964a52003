mod tables;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use vouch_daemon::status::DaemonStatus;
use vouch_daemon::status_client;

use crate::cli::Global;
use crate::exit::{At as _, Cause, Failure, Outcome};
use crate::{output, when};

/// Show the mounts, replicas, exports and caches of this machine.
///
/// Asks each running `vouch mount`, `vouch serve` and `vouch export` over its status socket in
/// /run/vouch, or in $XDG_RUNTIME_DIR/vouch for a user's own. A socket answers its own user and root
/// only: root sees everything.
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
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "2s", value_parser = when::parse_duration)]
    watch: Option<Duration>,
    /// Print the metrics of the daemon at this socket.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["json", "watch"])]
    metrics: Option<PathBuf>,
}

/// The state as far as this user may know it.
#[derive(Debug, Serialize)]
pub(crate) struct MachineStatus {
    pub(crate) daemons: Vec<Daemon>,
    /// Sockets whose daemon gave no answer.
    pub(crate) unanswered: Vec<Unanswered>,
    /// Mount points whose process has no answering socket.
    pub(crate) mounts_without_status: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    #[serde(flatten)]
    pub(crate) status: DaemonStatus,
}

#[derive(Debug, Serialize)]
pub(crate) struct Unanswered {
    pub(crate) socket: PathBuf,
    pub(crate) why: String,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if let Some(socket) = &args.metrics {
        let metrics = status_client::metrics(socket).map_err(|error| Failure::new(socket.display(), Cause::Io(error)))?;
        return output::text(&metrics);
    }
    let Some(interval) = args.watch else {
        let status = MachineStatus::read()?;
        return if args.json { output::json(&status) } else { output::text(&tables::all(&status, when::now_s())) };
    };
    let clears = io::stdout().is_terminal();
    loop {
        let status = MachineStatus::read()?;
        if args.json {
            output::json_line(&status)?;
        } else {
            let clear = if clears { CLEAR_SCREEN } else { "" };
            output::text(&format!("{clear}{}\n", tables::all(&status, when::now_s())))?;
        }
        std::thread::sleep(interval);
    }
}

impl MachineStatus {
    pub(crate) fn read() -> Outcome<Self> {
        let mut machine = MachineStatus { daemons: Vec::new(), unanswered: Vec::new(), mounts_without_status: Vec::new() };
        for (socket, answer) in status_client::all().at("status sockets")? {
            match answer {
                Ok(status) => machine.daemons.push(Daemon { socket, status }),
                Err(error) => machine.unanswered.push(Unanswered { socket, why: error.to_string() }),
            }
        }
        let known: Vec<PathBuf> = machine.mounts().map(|(_, mount)| mount.point).collect();
        machine.mounts_without_status = vouch_tree_mount::mount_points().at("/proc/self/mountinfo")?;
        machine.mounts_without_status.retain(|point| !known.contains(point));
        Ok(machine)
    }

    pub(crate) fn mounts(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_tree_mount::MountStatus)> {
        self.details(vouch_daemon::status::DaemonKind::Mount)
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_replica::ServeStatus)> {
        self.details(vouch_daemon::status::DaemonKind::Serve)
    }

    pub(crate) fn exports(&self) -> impl Iterator<Item = (&DaemonStatus, vouch_export::Status)> {
        self.details(vouch_daemon::status::DaemonKind::Export)
    }

    /// A daemon of another version may have another form of detail; `--json` still shows it.
    fn details<T: serde::de::DeserializeOwned>(&self, kind: vouch_daemon::status::DaemonKind) -> impl Iterator<Item = (&DaemonStatus, T)> {
        let of_kind = self.daemons.iter().filter(move |daemon| daemon.status.kind == kind);
        of_kind.filter_map(|daemon| Some((&daemon.status, serde_json::from_value(daemon.status.detail.clone()).ok()?)))
    }
}

/// Cursor home, erase the display (ECMA-48).
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
