use std::path::{Path, PathBuf};
use std::time::Duration;

use vouch_jobs::names::{JobId, UserName};
use vouch_jobs::wire::{Reply, Request};
use vouch_jobs::{Error, hostlist, spool};

use super::{BROKER_SOCKET, SPOOL, ask, job, note, slurm, unless_lenient};
use crate::exit::{Failure, Outcome};
use crate::{output, when};

/// Register a job, or change the nodes or deadline of a registered one.
///
/// For the scheduler: as PrologSlurmctld of Slurm with --slurm, which takes job, user and nodes from
/// the environment and asks squeue(1) for the time limit. With --slurm, a job that cannot be
/// registered starts without tickets, and the log has a line; with --strict, Slurm queues it
/// again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch jobs begin --slurm\n  vouch jobs begin --job 4711 --user alice --nodes node[1-4] --for 30d"
)]
pub(super) struct BeginArgs {
    /// The job's number; by default SLURM_JOB_ID or PBS_JOBID.
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,
    /// The job's user.
    #[arg(long, value_name = "USER", required_unless_present = "slurm")]
    user: Option<UserName>,
    /// The job's nodes: node[1-3,07-09],login1.
    #[arg(long, value_name = "LIST", required_unless_present = "slurm")]
    nodes: Option<String>,
    /// Time from now to the deadline: the job's time limit.
    #[arg(long = "for", value_name = "DURATION", value_parser = when::parse_duration, required_unless_present_any = ["slurm", "until"], conflicts_with = "until")]
    lasts: Option<Duration>,
    /// The deadline.
    #[arg(long, value_name = "WHEN", value_parser = when::parse_date)]
    until: Option<u64>,
    /// Take what is not given from Slurm.
    #[arg(long)]
    slurm: bool,
    /// With --slurm: fail if the job is not registered.
    #[arg(long)]
    strict: bool,
    /// Time beyond Slurm's limit, for the start and the end of the job.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = when::parse_duration)]
    grace: Duration,
    /// The broker's socket.
    #[arg(long, value_name = "PATH", default_value = BROKER_SOCKET)]
    socket: PathBuf,
}

/// Tell the broker that a job has ended.
///
/// Nodes get no more tickets for it, and those that still hold some remove them. As EpilogSlurmctld
/// of Slurm with --slurm. A job that is not registered is no error. While the broker is away, the end
/// is noted in --spool, which the broker reads.
///
/// With --missed it ends all registered jobs that have ended without a report, because slurmctld died
/// before EpilogSlurmctld. Slurm knows an ended job for some minutes (MinJobAge), so let cron(8) run
/// it each minute.
#[derive(Debug, clap::Args)]
pub(super) struct EndArgs {
    /// The job's number; by default SLURM_JOB_ID or PBS_JOBID.
    #[arg(long, value_name = "ID")]
    job: Option<JobId>,
    /// The scheduler is Slurm.
    #[arg(long)]
    slurm: bool,
    /// End all registered jobs that squeue(1) shows as finished.
    #[arg(long, requires = "slurm", conflicts_with = "job")]
    missed: bool,
    /// Directory for ends of jobs while the broker is away.
    #[arg(long, value_name = "DIR", default_value = SPOOL)]
    spool: PathBuf,
    /// The broker's socket.
    #[arg(long, value_name = "PATH", default_value = BROKER_SOCKET)]
    socket: PathBuf,
}

/// List the registered jobs, and the nodes that hold tickets.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// The broker's socket.
    #[arg(long, value_name = "PATH", default_value = BROKER_SOCKET)]
    socket: PathBuf,
}

pub(super) fn begin(args: BeginArgs) -> Outcome {
    unless_lenient(
        args.slurm && !args.strict,
        "begin: the job starts without tickets",
        register(args),
    )
}

fn register(args: BeginArgs) -> Outcome {
    let job = job(args.job.as_ref())?;
    let user = match args.user {
        Some(user) => user,
        None => slurm::variable("SLURM_JOB_USER")?
            .parse()
            .map_err(|error| Failure::input("SLURM_JOB_USER", error))?,
    };
    let list = match args.nodes {
        Some(list) => list,
        None => slurm::variable("SLURM_JOB_NODELIST")?,
    };
    let nodes = hostlist::expand(&list).map_err(|error| Failure::input("--nodes", error))?;
    let after = |lasts: Duration| when::now_s().saturating_add(lasts.as_secs());
    let deadline_s = match (args.until, args.lasts) {
        (Some(until), _) => until,
        (None, Some(lasts)) => after(lasts),
        // Without a limit, the broker's own is in force.
        (None, None) => {
            slurm::time_limit(&job)?.map_or(u64::MAX, |limit| after(limit + args.grace))
        }
    };
    let begun = ask(&args.socket, &Request::Begin { job: job.clone(), user, nodes, deadline_s })?;
    if let Reply::Begun { deadline_s: granted_s } = begun
        && granted_s < deadline_s
    {
        note(&format!(
            "begin: job {job} has tickets until {} only, by --job-life-max of the broker",
            when::utc(granted_s)
        ));
    }
    Ok(())
}

pub(super) fn end(args: EndArgs) -> Outcome {
    if args.missed {
        return end_missed(&args.socket);
    }
    let job = job(args.job.as_ref())?;
    match vouch_jobs::ask_local(&args.socket, &Request::End { job: job.clone() }) {
        Ok(_) => Ok(()),
        Err(refused @ Error::Refused(_)) => Err(refused.into()),
        Err(away) => {
            note(&format!(
                "end: job {job}: {away}; the broker learns of the end when it runs again"
            ));
            Ok(spool::add(&args.spool, &job)?)
        }
    }
}

fn end_missed(socket: &Path) -> Outcome {
    let Reply::Jobs { jobs } = ask(socket, &Request::List)? else { return Ok(()) };
    let finished = slurm::finished_jobs()?;
    for job in jobs.into_iter().filter(|job| job.ended_s.is_none()).map(|job| job.job) {
        if finished.contains(job.as_str()) {
            ask(socket, &Request::End { job: job.clone() })?;
            output::text(&format!("job {job} has ended\n"))?;
        }
    }
    Ok(())
}

pub(super) fn list(args: &ListArgs) -> Outcome {
    let Reply::Jobs { jobs } = ask(&args.socket, &Request::List)? else { return Ok(()) };
    if args.json {
        return output::json(&jobs);
    }
    let mut rows = vec![
        ["JOB", "USER", "NODES", "WITH TICKETS", "DEADLINE", "STATE"].map(str::to_owned).to_vec(),
    ];
    for job in jobs {
        let state = match job.ended_s {
            Some(_) => "ended",
            None if job.deadline_s <= when::now_s() => "past deadline",
            None => "live",
        };
        let counts = [job.nodes.len(), job.holders.len()].map(|count| count.to_string());
        let [nodes, holders] = counts;
        rows.push(vec![
            job.job.to_string(),
            job.user.to_string(),
            nodes,
            holders,
            when::utc(job.deadline_s),
            state.to_owned(),
        ]);
    }
    output::text(&output::table(&rows, &[2, 3]))
}
