//! What a check found.

use std::fmt;

use serde::{Serialize, Serializer};
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

macro_rules! faults {
    ($($fault:ident $name:literal,)*) => {
        /// A fault that a check names. docs/troubleshooting.md has its cause and cure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($fault,)*
        }

        impl Fault {
            #[cfg(test)]
            const ALL: &[Fault] = &[$(Fault::$fault),*];

            const fn name(self) -> &'static str {
                match self {
                    $(Fault::$fault => $name,)*
                }
            }
        }
    };
}

faults! {
    NoFuse "no-fuse", FuseRequestTimeout "fuse-request-timeout", NoFusermount "no-fusermount",
    ClockOff "clock-off", ClockUnsynchronised "clock-unsynchronised",
    ClocksDiffer "clocks-differ", StateRights "state-rights", StateDiskFull "state-disk-full",
    CacheDiskFull "cache-disk-full", CacheRights "cache-rights", NameUnresolved "name-unresolved",
    PortBlocked "port-blocked", PortClosed "port-closed",
    AddressUnreachable "address-unreachable", NoAnswer "no-answer", WrongHostid "wrong-hostid",
    TreeExpired "tree-expired", TreeExpiresSoon "tree-expires-soon", TreeRevoked "tree-revoked",
    TreeMoved "tree-moved", TreeRefused "tree-refused", TreeUnreadable "tree-unreadable",
    TreeNotServed "tree-not-served", ReplicaLies "replica-lies",
    ReplicaIncomplete "replica-incomplete", ReplicaBehind "replica-behind", Client "client",
    DatabaseMissing "database-missing", MountDead "mount-dead", MountFails "mount-fails",
    BucketUnfit "bucket-unfit", MountWithoutStatus "mount-without-status",
    DaemonSilent "daemon-silent", ExportNotRunning "export-not-running",
    KeytabMissing "keytab-missing", KeytabRights "keytab-rights",
    KeytabWithoutKey "keytab-without-key", ClientNameConflict "client-name-conflict",
    ExportList "export-list", NotExported "not-exported", ExportWarning "export-warning",
    Certificate "certificate", UserWithoutAccount "user-without-account",
    NameServiceSilent "name-service-silent", NameServiceSlow "name-service-slow",
    KeytabStaleKey "keytab-stale-key", ClockSkew "clock-skew", TicketRefused "ticket-refused",
    KdcUnavailable "kdc-unavailable", BrokerUnavailable "broker-unavailable",
    TicketsMissing "tickets-missing", TicketsRefused "tickets-refused", TrailFails "trail-fails",
    ErrorsLogged "errors-logged",
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<Fault>,
    subject: String,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Finding {
    pub fn ok(subject: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Verdict::Ok, None, subject, what)
    }

    pub fn note(fault: Fault, subject: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Verdict::Note, Some(fault), subject, what)
    }

    pub fn problem(fault: Fault, subject: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Verdict::Problem, Some(fault), subject, what)
    }

    pub fn cure(mut self, cure: impl fmt::Display) -> Self {
        self.cure = Some(cure.to_string());
        self
    }

    fn new(
        verdict: Verdict,
        fault: Option<Fault>,
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
                Finding::note(Fault::ErrorsLogged, subject, what).cure("`vouch status` shows them"),
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
            let fault =
                finding.fault.map_or_else(String::new, |fault| format!("{}: ", fault.name()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_documented_and_no_other() {
        let page = include_str!("../../../../docs/troubleshooting.md");
        let table = page.split_once("| fault | cause | cure |").expect("the table of faults").1;
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| row.split('|').nth(1).expect("a cell"));
        let mut documented: Vec<&str> =
            cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let mut all: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        documented.sort_unstable();
        all.sort_unstable();
        assert_eq!(all, documented);
    }
}
