//! Orders to the running server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use vouch_daemon::printable::printable;
use vouch_export::Origin;
use vouch_export::management::{Answer, Order, StateKind, StateStatus};
use vouch_export::path_word;

use super::running::Running;
use super::status::{self, row};
use crate::exit::{Code, Failure, Outcome};
use crate::{output, when};

/// List the exports in force, with the options of each client.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Export another directory or tree at once.
///
/// If the new export has an error, nothing changes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch export add /srv/new '192.0.2.0/24(rw,sec=krb5p)' 192.0.2.7\n  \
                  vouch export add --keep tree:@db.example,HOSTID '*(ro)'"
)]
pub(crate) struct SetArgs {
    /// Directory, or tree:NAME or tree:DB.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Client and its options as in exports(5), such as '192.0.2.0/24(rw,sec=krb5p)'.
    #[arg(value_name = "CLIENT(OPTIONS)", required = true)]
    clients: Vec<String>,
    /// Keep it when the server restarts: it is stored in the state directory.
    #[arg(long)]
    keep: bool,
}

/// Stop exporting a directory or tree at once.
///
/// Opens, locks and delegations on its files end. An export of a list comes back when the server
/// restarts.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Path as `vouch export list` shows it.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Remove an export that was added with --keep for ever.
    #[arg(long)]
    keep: bool,
}

/// List and evict clients.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ClientCommand {
    /// List clients with their sessions, opens, locks and delegations.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// End a client with all its opens, locks and delegations.
    ///
    /// It may come back as a new client: to keep it out, change its export first.
    Evict {
        /// Id or address.
        #[arg(value_name = "CLIENT")]
        client: String,
    },
}

/// List opens, locks and delegations with their clients and files.
#[derive(Debug, clap::Args)]
pub(crate) struct StatesArgs {
    /// Only of this client: id or address.
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// Only on this file, or on files below this directory.
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// End all opens, locks and delegations on a file, or on all files of an export.
///
/// Clients that use them get errors. Afterwards others can lock the file, or the file system can be
/// unmounted once it is not exported.
#[derive(Debug, clap::Args)]
pub(crate) struct UnlockArgs {
    /// File, or the path of an export.
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Take no new clients, and serve those that are there.
///
/// The health page answers 503, so that load balancers choose other servers.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 draining, and with --wait no client has opens or locks; 1 some still have after the wait."
)]
pub(crate) struct DrainArgs {
    /// Take new clients again.
    #[arg(long)]
    cancel: bool,
    /// Wait this long at most until no client has opens, locks or delegations.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration, conflicts_with = "cancel")]
    wait: Option<Duration>,
}

pub(super) fn list(args: &ListArgs, running: Running<'_>) -> Outcome {
    let answer = send(running, &Order::ListExports)?;
    if args.json {
        return output::json(&answer);
    }
    let mut rows = vec![row(["PATH", "CLIENT", "FROM", "OPTIONS"])];
    rows.extend(answer.exports.unwrap_or_default().iter().map(|rule| {
        let origin = match rule.origin {
            Origin::List => "list",
            Origin::Kept => "kept",
            Origin::Temporary => "temporary",
        };
        row([&rule.path, &rule.client, origin, &rule.options])
    }));
    let hidden = answer.hidden.iter().map(|path| format!("removed until the restart: {path}\n"));
    output::text(&(output::table(&rows, &[]) + &hidden.collect::<String>()))
}

pub(super) fn add(args: SetArgs, running: Running<'_>) -> Outcome {
    let SetArgs { path, clients, keep } = args;
    change(running, &Order::AddExport { path: path_word(&path), clients, keep })
}

pub(super) fn set(args: SetArgs, running: Running<'_>) -> Outcome {
    let SetArgs { path, clients, keep } = args;
    change(running, &Order::SetExport { path: path_word(&path), clients, keep })
}

pub(super) fn remove(args: &RemoveArgs, running: Running<'_>) -> Outcome {
    change(running, &Order::RemoveExport { path: path_word(&args.path), keep: args.keep })
}

pub(super) fn discard(running: Running<'_>) -> Outcome {
    change(running, &Order::DiscardChanges)
}

pub(super) fn client(command: &ClientCommand, running: Running<'_>) -> Outcome {
    match command {
        ClientCommand::List { json } => {
            let status = running.connect()?.status()?;
            if *json {
                output::json(&status.clients)
            } else {
                output::text(&status::clients(&status.clients))
            }
        }
        ClientCommand::Evict { client } => {
            let answer = send(running, &Order::EvictClient { client: client.clone() })?;
            output::text(&format!("{} clients ended\n", answer.ended.unwrap_or_default()))
        }
    }
}

pub(super) fn states(args: StatesArgs, running: Running<'_>) -> Outcome {
    let StatesArgs { client, path, json } = args;
    let mut answer = send(running, &Order::ListState { client })?;
    if let (Some(states), Some(path)) = (&mut answer.states, &path) {
        let wanted = printable(path.as_os_str().as_encoded_bytes());
        let is_below = |held: &str| {
            held.strip_prefix(wanted.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        states.retain(|state| is_below(&file(state)));
    }
    if json {
        return output::json(&answer);
    }
    let mut rows = vec![row(["CLIENT ID", "KIND", "ACCESS", "DENY", "FILE", "RANGES"])];
    rows.extend(answer.states.unwrap_or_default().iter().map(state_row));
    output::text(&(output::table(&rows, &[]) + &warnings(&answer.warnings)))
}

fn state_row(state: &StateStatus) -> Vec<String> {
    let kind = match (state.kind, state.recalled) {
        (StateKind::Open, _) => "open",
        (StateKind::Lock, _) => "lock",
        (StateKind::Delegation, false) => "delegation",
        (StateKind::Delegation, true) => "delegation, recalled",
        (StateKind::DirectoryDelegation, false) => "directory delegation",
        (StateKind::DirectoryDelegation, true) => "directory delegation, recalled",
        (StateKind::Copy, _) => "copy",
    };
    let ranges = state.locks.iter().map(|lock| {
        let end = match lock.length {
            Some(length) => lock.offset.saturating_add(length - 1).to_string(),
            None => "end".to_owned(),
        };
        format!("{}-{end}{}", lock.offset, if lock.exclusive { "" } else { " shared" })
    });
    let dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    vec![
        state.client.clone(),
        kind.to_owned(),
        dash(&state.access),
        dash(&state.deny),
        file(state),
        dash(&ranges.collect::<Vec<_>>().join(", ")),
    ]
}

fn file(state: &StateStatus) -> String {
    match state.path.as_deref() {
        None => format!("{} (a file without a known path)", state.export),
        Some("") => state.export.clone(),
        Some(path) => format!("{}/{path}", state.export.trim_end_matches('/')),
    }
}

pub(super) fn unlock(args: &UnlockArgs, running: Running<'_>) -> Outcome {
    let answer = send(running, &Order::Unlock { path: path_word(&args.path) })?;
    output::text(&format!("{} opens, delegations and copies ended\n", answer.ended.unwrap_or(0)))
}

pub(super) fn drain(args: &DrainArgs, running: Running<'_>) -> Outcome {
    let server = running.connect()?;
    server.send(&Order::Drain { on: !args.cancel })?;
    let Some(wait) = args.wait else { return Ok(()) };
    let until = Instant::now() + wait;
    loop {
        let mut busy = server.status()?.clients;
        busy.retain(|client| client.opens + client.locks + client.delegations > 0);
        if busy.is_empty() {
            return Ok(());
        }
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            output::text(&status::clients(&busy))?;
            return Err(Failure::silent(Code::Differs));
        }
        std::thread::sleep(rest.min(DRAIN_POLL));
    }
}

fn change(running: Running<'_>, order: &Order) -> Outcome {
    output::text(&warnings(&send(running, order)?.warnings))
}

fn warnings(all: &[String]) -> String {
    all.iter().map(|warning| format!("{warning}\n")).collect()
}

fn send(running: Running<'_>, order: &Order) -> Outcome<Answer> {
    running.connect()?.send(order)
}

const DRAIN_POLL: Duration = Duration::from_millis(500);
