mod check_proof;
mod directory;
mod filter;
mod follow;
mod host;
mod job;
mod keygen;
mod log;
mod prove;
mod report;
mod search;
mod send;
mod show;
mod verify;

use std::path::Path;

use vouch_audit::trail::segments;

use crate::cli::Global;
use crate::exit::Outcome;

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
    Log(log::Args),
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        match &self.command {
            Command::Host(args) => args.is_daemon(),
            Command::Send(args) => args.is_daemon(),
            Command::Log(args) => args.is_daemon(),
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
        Command::Log(args) => log::run(args, global),
    }
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
