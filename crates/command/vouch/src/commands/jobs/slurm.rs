//! The job's environment in prologs, its time limit and ended jobs by squeue(1).

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use vouch_jobs::names::JobId;

use crate::exit::{At as _, Failure, Outcome};

pub(super) fn variable(name: &str) -> Outcome<String> {
    std::env::var(name).map_err(|_| {
        Failure::usage(name, "is not set; run this as PrologSlurmctld, or give the option")
    })
}

/// None: the job has no limit.
pub(super) fn time_limit(job: &JobId) -> Outcome<Option<Duration>> {
    let mut command = Command::new("squeue");
    let out = command
        .args(["--noheader", "--jobs", job.as_str(), "--format", "%l"])
        .stdin(Stdio::null())
        .output()
        .at("squeue")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let limit = text.lines().next().unwrap_or_default().trim();
    if !out.status.success() || limit.is_empty() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(Failure::not_found(
            format!("job {job}"),
            format!("squeue knows no time limit: {}", why.trim()),
        ));
    }
    parse_limit(limit).ok_or_else(|| {
        Failure::input("squeue", format!("the time limit {limit:?} is not understood; give --for"))
    })
}

/// Jobs that squeue(1) shows as finished, for MinJobAge (5 minutes) after their end. The format has no
/// text of users: names, comments and directories of jobs may hold line breaks, and scontrol(1) prints
/// them as they are.
pub(super) fn finished_jobs() -> Outcome<BTreeSet<String>> {
    let mut command = Command::new("squeue");
    command.env_remove("SLURM_CLUSTERS").args([
        "--noheader",
        "--all",
        "--states=all",
        "--format",
        "%A %F %K %T",
    ]);
    let out = command.stdin(Stdio::null()).output().at("squeue")?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(vouch_jobs::Error::Unavailable(format!(
            "squeue --states=all fails: {}",
            why.trim()
        ))
        .into());
    }
    Ok(finished_in(&String::from_utf8_lossy(&out.stdout)))
}

/// One line a job: its number, its array's number, its task and its state. A task of an array has two
/// names: its number, and ARRAY_TASK.
fn finished_in(text: &str) -> BTreeSet<String> {
    /// Base states of squeue(1), "JOB STATE CODES", after which a job does not run.
    const FINISHED: [&str; 9] = [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    ];
    let mut finished = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[job, array, task, state] = &words[..] else { continue };
        if FINISHED.contains(&state) {
            finished.insert(job.to_owned());
            if task.parse::<u32>().is_ok() {
                finished.insert(format!("{array}_{task}"));
            }
        }
    }
    finished
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
    fn jobs_are_finished_by_their_states() {
        let ended = "7 7 N/A COMPLETED\n9 8 2 NODE_FAIL\n";
        assert_eq!(finished_in(ended), ["7", "8_2", "9"].map(str::to_owned).into());
        for live in ["RUNNING", "PENDING", "COMPLETING", "SUSPENDED", "CONFIGURING", "REQUEUED"] {
            assert!(finished_in(&format!("8 8 [3-9] {live}\n")).is_empty(), "{live}");
        }
        assert!(finished_in("").is_empty());
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
