//! The job's environment in prologs; its time limit, and which jobs there are, by squeue(1).

use std::collections::BTreeSet;
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

/// Numbers of all jobs that wait or run. squeue(1) must show those of all users: PrivateData of
/// slurm.conf(5) hides them from others than root and Slurm's user, who alone may end jobs.
pub(super) fn listed_jobs() -> Outcome<BTreeSet<String>> {
    let mut command = Command::new("squeue");
    let out = command.args(["--noheader", "--all", "--array", "--format", "%A"]).stdin(Stdio::null()).output().at("squeue")?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(vouch_jobs::Error::Unavailable(format!("no job is ended, because squeue fails: {}", why.trim())).into());
    }
    Ok(String::from_utf8_lossy(&out.stdout).lines().map(|line| line.trim().to_owned()).collect())
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
