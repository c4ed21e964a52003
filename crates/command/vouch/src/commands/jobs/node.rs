//! The scheduler's side on a node, through the agent.

use std::path::PathBuf;

use vouch_jobs::names::JobId;
use vouch_jobs::wire::Request;

use super::{AGENT_SOCKET, ask, job, unless_lenient};
use crate::exit::{Failure, Outcome};

/// Get the tickets of a job that begins on this node.
///
/// Returns when they are in place. A job for which the broker refuses tickets starts all the same,
/// unless --strict is given: Slurm drains a node whose prolog fails.
#[derive(Debug, clap::Args)]
pub(super) struct PrologArgs {
    #[command(flatten)]
    at: NodeArgs,
    /// Numeric user of the job on this node; by default SLURM_JOB_UID. Must be the user that the
    /// broker knows.
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,
    /// Fail without tickets.
    #[arg(long)]
    strict: bool,
}

/// Remove the tickets of a job that has ended on this node.
///
/// Tickets that the user's other jobs on this node need stay. An agent that does not answer removes
/// them when it runs again and the job has ended. Slurm drains a node whose epilog fails, so that is
/// a line in the log, unless --strict is given.
#[derive(Debug, clap::Args)]
pub(super) struct EpilogArgs {
    #[command(flatten)]
    at: NodeArgs,
    /// Fail if the tickets may still be there.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, clap::Args)]
struct NodeArgs {
    /// The job's number; by default SLURM_JOB_ID or PBS_JOBID.
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,
    /// The agent's socket.
    #[arg(long, value_name = "PATH", default_value = AGENT_SOCKET)]
    socket: PathBuf,
}

pub(super) fn prolog(args: &PrologArgs) -> Outcome {
    unless_lenient(!args.strict, "prolog: the job starts without tickets", enter(args))
}

fn enter(args: &PrologArgs) -> Outcome {
    let uid = match (args.uid, std::env::var("SLURM_JOB_UID")) {
        (None, Ok(text)) => {
            Some(text.parse().map_err(|error| Failure::input("SLURM_JOB_UID", error))?)
        }
        (uid, _) => uid,
    };
    let job = job(args.at.job.as_ref())?;
    ask(&args.at.socket, &Request::Enter { job: job.clone(), uid })
        .map(drop)
        .map_err(|failure| failure.reached_by(&format!("job {job}")))
}

pub(super) fn epilog(args: &EpilogArgs) -> Outcome {
    let left = job(args.at.job.as_ref())
        .and_then(|job| ask(&args.at.socket, &Request::Leave { job }).map(drop));
    unless_lenient(!args.strict, "epilog: the tickets are removed later", left)
}
