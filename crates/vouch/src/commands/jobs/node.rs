//! The scheduler's side on a node, through the agent.

use std::path::PathBuf;

use vouch_jobs::names::JobId;
use vouch_jobs::wire::Request;

use super::{AGENT_SOCKET, ask, job};
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
/// Tickets that the user's other jobs on this node need stay.
#[derive(Debug, clap::Args)]
pub(super) struct EpilogArgs {
    #[command(flatten)]
    at: NodeArgs,
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
    let uid = match (args.uid, std::env::var("SLURM_JOB_UID")) {
        (None, Ok(text)) => Some(text.parse().map_err(|error| Failure::input("SLURM_JOB_UID", error))?),
        (uid, _) => uid,
    };
    let job = job(args.at.job.as_ref())?;
    match ask(&args.at.socket, &Request::Enter { job: job.clone(), uid }) {
        Ok(_) => Ok(()),
        Err(failure) if args.strict => Err(failure),
        Err(failure) => {
            eprintln!("vouch jobs prolog: job {job} starts without tickets: {}", failure);
            Ok(())
        }
    }
}

pub(super) fn epilog(args: &EpilogArgs) -> Outcome {
    ask(&args.at.socket, &Request::Leave { job: job(args.at.job.as_ref())? }).map(drop)
}
