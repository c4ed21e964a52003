//! What a check found.

use std::fmt;

use serde::Serialize;
use vouch_daemon::printable::printable;
use vouch_daemon::status::DaemonStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Worth knowing, and no problem by itself.
    Note,
    Problem,
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    verdict: Verdict,
    /// Name of the fault in docs/troubleshooting.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
    subject: String,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Finding {
    pub fn ok(subject: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Verdict::Ok, None, subject, what)
    }

    pub fn note(fault: &'static str, subject: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Verdict::Note, Some(fault), subject, what)
    }

    pub fn problem(
        fault: &'static str,
        subject: impl fmt::Display,
        what: impl fmt::Display,
    ) -> Self {
        Self::new(Verdict::Problem, Some(fault), subject, what)
    }

    pub fn cure(mut self, cure: impl fmt::Display) -> Self {
        self.cure = Some(cure.to_string());
        self
    }

    fn new(
        verdict: Verdict,
        fault: Option<&'static str>,
        subject: impl fmt::Display,
        what: impl fmt::Display,
    ) -> Self {
        Self { verdict, fault, subject: subject.to_string(), what: what.to_string(), cure: None }
    }
}

#[derive(Debug, Default, Serialize)]
pub struct Findings {
    problems: usize,
    findings: Vec<Finding>,
}

impl Findings {
    pub fn add(&mut self, finding: Finding) {
        self.problems += usize::from(finding.verdict == Verdict::Problem);
        self.findings.push(finding);
    }

    /// A note if the daemon has logged errors in the last hour.
    pub(crate) fn add_logged_errors(&mut self, subject: impl fmt::Display, daemon: &DaemonStatus) {
        let count = daemon.log.errors_last_hour;
        if count > 0 {
            let last = daemon
                .log
                .newest
                .iter()
                .rev()
                .find(|entry| entry.is_error)
                .map_or("", |entry| &*entry.message);
            let what = format!("{count} errors in the log of the last hour; the last is: {last}");
            self.add(
                Finding::note("errors-logged", subject, what).cure("`vouch status` shows them"),
            );
        }
    }

    pub const fn has_problems(&self) -> bool {
        self.problems > 0
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Text of replicas and of other processes is made printable.
        let text = |text: &str| printable(text.as_bytes());
        for finding in &self.findings {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok     ",
                Verdict::Note => "note   ",
                Verdict::Problem => "PROBLEM",
            };
            let fault = finding.fault.map_or_else(String::new, |fault| format!("{fault}: "));
            writeln!(f, "{verdict}  {fault}{}: {}", text(&finding.subject), text(&finding.what))?;
            if let Some(cure) = &finding.cure {
                writeln!(f, "         cure: {}", text(cure))?;
            }
        }
        match self.problems {
            0 => writeln!(f, "no problem found"),
            1 => writeln!(f, "1 problem found"),
            count => writeln!(f, "{count} problems found"),
        }
    }
}
