mod check_proof;
mod filter;
mod follow;
mod host;
mod job;
mod keygen;
mod prove;
mod report;
mod search;
mod send;
mod show;
mod verify;

use std::path::Path;

use vouch_audit::trail::{CHECKPOINT_FILE, KEY_FILE, segments};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};

/// Search and verify audit trails.
///
/// `vouch export --audit DIR` and `vouch mount --audit DIR` write a trail: one record for each
/// operation that the rules select, chained by hashes and sealed with keys that are destroyed after
/// use.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit keygen /var/lib/vouch/audit > trail.pub     begin a trail; keep trail.pub elsewhere\n  \
                  vouch export --audit /var/lib/vouch/audit --audit-rules /etc/vouch/audit.rules\n  \
                  vouch audit verify --public trail.pub /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Keygen(keygen::Args),
    Search(search::Args),
    Report(report::Args),
    Follow(follow::Args),
    Verify(verify::Args),
    Prove(prove::Args),
    CheckProof(check_proof::Args),
    Host(host::Args),
    Send(send::Args),
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        match &self.command {
            Command::Host(args) => args.is_daemon(),
            Command::Send(args) => args.is_daemon(),
            _ => false,
        }
    }
}

/// `search` and `report` found nothing: the same line on standard error.
fn report_no_match(directories: &[&Path], filter: &filter::Filter) {
    let count: usize = directories
        .iter()
        .filter_map(|directory| segments(directory).ok())
        .map(|files| files.len())
        .sum();
    eprintln!("no record matches ({count} segments searched){}", filter.hint());
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    match args.command {
        Command::Keygen(args) => keygen::run(args, global),
        Command::Search(args) => search::run(args, global),
        Command::Report(args) => report::run(args, global),
        Command::Follow(args) => follow::run(args, global),
        Command::Verify(args) => verify::run(args, global),
        Command::Prove(args) => prove::run(args, global),
        Command::CheckProof(args) => check_proof::run(args, global),
        Command::Host(args) => host::run(args, global),
        Command::Send(args) => send::run(args, global),
    }
}

/// A wrong directory must not look like a trail without matches. A new trail has a key only.
fn require_trail(directory: &Path) -> Outcome {
    let exists = |name: &str| directory.join(name).symlink_metadata().is_ok();
    if exists(KEY_FILE)
        || exists(CHECKPOINT_FILE)
        || !segments(directory).at(directory.display())?.is_empty()
    {
        return Ok(());
    }
    Err(Failure::not_found(directory.display(), "contains no audit trail")
        .cure("give the directory of --audit"))
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
