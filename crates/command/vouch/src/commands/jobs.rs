//! Kerberos tickets for batch jobs. `vouch_jobs` does the work.

mod agent;
mod broker;
mod node;
mod scheduler;
mod slurm;

use std::path::Path;

use vouch_jobs::names::JobId;

use crate::cli::Global;
use crate::exit::{Failure, Outcome};

/// Give batch jobs Kerberos tickets for as long as they run.
///
/// A broker on a guarded host mints service tickets for `nfs/` by constrained delegation, for the
/// jobs that the scheduler has registered. An agent on each node writes them where rpc.gssd reads
/// them, renews them, and removes them at the job's end. Neither holds a user's password, key or
/// ticket-granting ticket.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    vouch jobs broker --principal vouch-jobs/head.example.org --keytab /etc/vouch/jobs.keytab --service nfs/filer.example.org\n  \
    vouch jobs agent --broker head.example.org             on each node\n  \
    vouch jobs begin --slurm; vouch jobs end --slurm       PrologSlurmctld, EpilogSlurmctld\n  \
    vouch jobs prolog; vouch jobs epilog                   Prolog and Epilog of Slurm's nodes\n  \
    vouch audit search --job 4711 /var/lib/vouch-jobs/audit")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Broker(Box<broker::Args>),
    Agent(Box<agent::Args>),
    Begin(scheduler::BeginArgs),
    End(scheduler::EndArgs),
    List(scheduler::ListArgs),
    Prolog(node::PrologArgs),
    Epilog(node::EpilogArgs),
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(self.command, Command::Broker(_) | Command::Agent(_))
    }
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    match args.command {
        Command::Broker(args) => broker::run(*args),
        Command::Agent(args) => agent::run(*args),
        Command::Begin(args) => scheduler::begin(args),
        Command::End(args) => scheduler::end(args),
        Command::List(args) => scheduler::list(&args),
        Command::Prolog(args) => node::prolog(&args),
        Command::Epilog(args) => node::epilog(&args),
    }
}

const BROKER_SOCKET: &str = "/run/vouch-jobs/broker.sock";
pub(super) const AGENT_SOCKET: &str = "/run/vouch-jobs-agent/agent.sock";
const SPOOL: &str = "/var/spool/vouch-jobs";

/// Listens on a Unix socket, in place of the one of an ended process.
fn listen(path: &Path, mode: u32) -> Outcome<std::os::unix::net::UnixListener> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    let failed = |error: std::io::Error| Failure::new(path.display(), error);
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(failed(std::io::ErrorKind::ResourceBusy.into())
            .cure("another process listens there; stop it, or give another --socket"));
    }
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = vouch_daemon::private_socket::bind(path, mode).map_err(failed)?;
    // Whatever the umask is.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

fn job(given: Option<&JobId>) -> Outcome<JobId> {
    if let Some(job) = given {
        return Ok(job.clone());
    }
    for variable in ["SLURM_JOB_ID", "PBS_JOBID"] {
        if let Ok(text) = std::env::var(variable) {
            return JobId::parse(&text).map_err(|error| Failure::input(variable, error));
        }
    }
    Err(Failure::usage("--job", "give the job's number; neither SLURM_JOB_ID nor PBS_JOBID is set"))
}

/// Without --strict, a script of the scheduler succeeds: a job starts without tickets rather than not
/// at all, and no node is drained.
fn unless_lenient(is_lenient: bool, what: &str, outcome: Outcome) -> Outcome {
    match outcome {
        Err(failure) if is_lenient => {
            note(&format!("{what}: {failure}"));
            Ok(())
        }
        other => other,
    }
}

/// One line on standard error, and in the system's log: schedulers drop the output of scripts.
fn note(text: &str) {
    let line = format!("vouch jobs {}", text.replace('\n', " "));
    eprintln!("{line}");
    /// A warning of a daemon (RFC 5424, section 6.2.1).
    const PRIORITY: u8 = 3 * 8 + 4;
    if let Ok(socket) = std::os::unix::net::UnixDatagram::unbound() {
        let _ = socket.send_to(format!("<{PRIORITY}>vouch-jobs: {line}").as_bytes(), "/dev/log");
    }
}

fn ask(socket: &Path, request: &vouch_jobs::wire::Request) -> Outcome<vouch_jobs::wire::Reply> {
    Ok(vouch_jobs::ask_local(socket, request)?)
}
