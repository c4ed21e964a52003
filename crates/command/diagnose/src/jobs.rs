//! The broker and the agent of `vouch jobs`: their keytabs, their peers, and what they refused.

use std::path::Path;

use vouch_daemon::status::DaemonStatus;
use vouch_jobs::agent::AgentStatus;
use vouch_jobs::broker::BrokerStatus;
use vouch_jobs::{OutageStatus, RefusalStatus, SERVICE};

use crate::export::check_keytab_for;
use crate::finding::{Fault, Finding, Findings};

/// Checks a broker that runs.
pub fn check_broker(daemon: &DaemonStatus, status: &BrokerStatus, findings: &mut Findings) {
    let BrokerStatus { addresses, live_jobs, holders, outage, refusals, .. } = status;
    let subject = format!("jobs broker on {}", addresses.join(", "));
    findings.add(match outage {
        None => Finding::ok(
            &subject,
            format_args!("process {}, {live_jobs} live jobs, {holders} with tickets", daemon.pid),
        ),
        Some(outage) => outage_of(outage, &subject, "the KDC gives no tickets"),
    });
    findings.add(check_keytab_for(Path::new(&status.keytab), SERVICE));
    if !status.is_trail_healthy {
        let what = "the disk does not take the records of the trail";
        findings.add(
            Finding::problem(Fault::TrailFails, &subject, what)
                .cure("free disk space, and see the log of the broker"),
        );
    }
    add_refusals(refusals, findings);
    findings.add_logged_errors(&subject, daemon);
}

/// Checks an agent that runs.
pub fn check_agent(daemon: &DaemonStatus, status: &AgentStatus, findings: &mut Findings) {
    let AgentStatus {
        node, principal, jobs, users, users_without_tickets, outage, refusals, ..
    } = status;
    let subject = format!("jobs agent of node {node}");
    findings.add(match outage {
        None => Finding::ok(
            &subject,
            format_args!("process {}, {jobs} jobs of {users} users", daemon.pid),
        ),
        Some(outage) => outage_of(outage, &subject, "the broker gives no tickets"),
    });
    if let Some((service, _)) = principal.split_once('/') {
        findings.add(check_keytab_for(Path::new(&status.keytab), service));
    }
    if !users_without_tickets.is_empty() {
        let uids: Vec<String> = users_without_tickets.iter().map(u32::to_string).collect();
        let what = format!(
            "the tickets of uid {} have ended and were not renewed; their jobs cannot use NFS",
            uids.join(", ")
        );
        findings.add(
            Finding::problem(Fault::TicketsMissing, &subject, what)
                .cure("see the other findings about this agent, and its log"),
        );
    }
    add_refusals(refusals, findings);
    findings.add_logged_errors(&subject, daemon);
}

fn outage_of(outage: &OutageStatus, subject: &str, what: &str) -> Finding {
    let at = jiff::Timestamp::from_second(i64::try_from(outage.since_s).unwrap_or(i64::MAX))
        .unwrap_or_default();
    let what = format!("{what} since {at}: {}", outage.reason);
    match outage.fault.as_str() {
        // The reason ends with the cure.
        "clock-skew" => Finding::problem(Fault::ClockSkew, subject, what),
        "keytab-stale-key" => Finding::problem(Fault::KeytabStaleKey, subject, what).cure(
            "write the present key to the keytab (`kadmin: ktadd -norandkey -k FILE PRINCIPAL`)",
        ),
        "broker-unavailable" => Finding::problem(Fault::BrokerUnavailable, subject, what).cure(
            "see that `vouch jobs broker` runs, that TCP port 4344 to it is open, and read its log",
        ),
        _ => Finding::problem(Fault::KdcUnavailable, subject, what)
            .cure("see that the KDC runs and that krb5.conf names it"),
    }
}

/// Those of the last hour.
fn add_refusals(refusals: &[RefusalStatus], findings: &mut Findings) {
    let recent = crate::now_s().saturating_sub(REFUSAL_AGE_S_MAX);
    for refused in refusals.iter().filter(|refused| refused.at_s >= recent) {
        findings.add(refusal(refused));
    }
}

fn refusal(RefusalStatus { fault, job, user, node, reason, at_s }: &RefusalStatus) -> Finding {
    let at =
        jiff::Timestamp::from_second(i64::try_from(*at_s).unwrap_or(i64::MAX)).unwrap_or_default();
    let parts =
        [("job", job), ("of", user), ("on", node)].into_iter().filter(|(_, text)| !text.is_empty());
    let subject = parts.map(|(word, text)| format!("{word} {text}")).collect::<Vec<_>>().join(" ");
    let what = format!("got no tickets at {at}: {reason}");
    match fault.as_str() {
        "user-without-account" => Finding::note(Fault::UserWithoutAccount, subject, what)
            .cure("`getent passwd USER` must show the user on the host of the broker and on each node, with one uid"),
        _ => Finding::note(Fault::TicketsRefused, subject, what),
    }
}

const REFUSAL_AGE_S_MAX: u64 = 3600;
