//! The job's environment in prologs, its time limit by squeue(1), and its end by scontrol(1).

use std::process::{Command, Stdio};
use std::time::Duration;

use vouch_jobs::names::JobId;

use crate::exit::{At as _, Failure, Outcome};

pub(super) fn variable(name: &str) -> Outcome<String> {
    std::env::var(name).map_err(|_| Failure::usage(name, "is not set; run this as PrologSlurmctld, or give the option"))
}

/// None: the job has no limit.
pub(super) fn time_limit(job: &JobId) -> Outcome<Option<Duration>> {
    let mut command = Command::new("squeue");
    let out = command.args(["--noheader", "--jobs", job.as_str(), "--format", "%l"]).stdin(Stdio::null()).output().at("squeue")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let limit = text.lines().next().unwrap_or_default().trim();
    if !out.status.success() || limit.is_empty() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(Failure::not_found(format!("job {job}"), format!("squeue knows no time limit: {}", why.trim())));
    }
    parse_limit(limit).ok_or_else(|| Failure::input("squeue", format!("the time limit {limit:?} is not understood; give --for")))
}

/// Whether scontrol(1) shows this job, and as finished. Slurm shows a job for MinJobAge (5 minutes)
/// after its end.
pub(super) fn has_ended(job: &JobId) -> Outcome<bool> {
    let mut command = Command::new("scontrol");
    command.env_remove("SLURM_CLUSTERS").args(["--oneliner", "show", "job", job.as_str()]);
    let out = command.stdin(Stdio::null()).output().at("scontrol")?;
    if out.status.success() {
        return Ok(are_finished(&String::from_utf8_lossy(&out.stdout)));
    }
    let why = String::from_utf8_lossy(&out.stderr);
    if why.contains("Invalid job id") {
        return Ok(false);
    }
    Err(vouch_jobs::Error::Unavailable(format!("scontrol show job {job} fails: {}", why.trim())).into())
}

/// One line a job. The number of an array stands for all its tasks.
fn are_finished(text: &str) -> bool {
    /// Base states of squeue(1), "JOB STATE CODES", after which a job does not run.
    const FINISHED: [&str; 9] =
        ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"];
    let state = |line: &str| line.split_whitespace().find_map(|word| word.strip_prefix("JobState=")).map(str::to_owned);
    let mut states = text.lines().map(state).peekable();
    states.peek().is_some() && states.all(|state| state.is_some_and(|state| FINISHED.contains(&&*state)))
}

/// `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS` or `UNLIMITED` (squeue(1), "%l").
#[expect(clippy::option_option, reason = "not understood, or without limit")]
fn parse_limit(text: &str) -> Option<Option<Duration>> {
    if text == "UNLIMITED" {
        return Some(None);
    }
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let mut seconds = 0u64;
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    // Slurm writes at least minutes and seconds.
    let is_complete = (2..=3).contains(&clock.split(':').count());
    let days = days.parse::<u64>().ok()?.checked_mul(86_400)?;
    is_complete.then_some(Some(Duration::from_secs(seconds.checked_add(days)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_is_finished_when_all_its_tasks_are() {
        let line = |state: &str| format!("JobId=7 JobName=a UserId=alice(1000) JobState={state} Reason=None RunTime=00:00:01\n");
        assert!(are_finished(&line("COMPLETED")));
        assert!(are_finished(&(line("NODE_FAIL") + &line("TIMEOUT"))));
        for live in ["RUNNING", "PENDING", "COMPLETING", "SUSPENDED", "CONFIGURING", "REQUEUED"] {
            assert!(!are_finished(&(line("COMPLETED") + &line(live))), "{live}");
        }
        assert!(!are_finished("") && !are_finished("No jobs in the system\n"));
    }

    #[test]
    fn time_limits_of_slurm_are_understood() {
        let seconds = |text| parse_limit(text).map(|limit| limit.map(|limit| limit.as_secs()));
        assert_eq!(seconds("1:30"), Some(Some(90)));
        assert_eq!(seconds("10:00:00"), Some(Some(36_000)));
        assert_eq!(seconds("30-00:00:01"), Some(Some(30 * 86_400 + 1)));
        assert_eq!(seconds("UNLIMITED"), Some(None));
        for bad in ["", "90", "INVALID", "1:2:3:4", "x-1:00", "NOT_SET"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
