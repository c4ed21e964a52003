//! A gateway: its tree and its log.

use vouch_daemon::status::DaemonStatus;
use vouch_gateway::GatewayStatus;
use vouch_tree::TreeName;

use crate::finding::{Fault, Finding, Findings};

/// Checks a gateway that runs. Returns its tree, to check.
pub fn check(
    daemon: &DaemonStatus,
    gateway: &GatewayStatus,
    findings: &mut Findings,
) -> Option<TreeName> {
    let subject = gateway.addresses.join(", ");
    findings.add(match &*gateway.state {
        "fresh" => Finding::ok(
            &subject,
            format_args!("served by process {}, revision {}", daemon.pid, gateway.revision),
        ),
        state => Finding::problem(
            Fault::TreeNotServed,
            &subject,
            format_args!("the gateway serves no file, because its tree is {state}"),
        )
        .cure("see the findings about its replicas below"),
    });
    findings.add_logged_errors(&subject, daemon);
    gateway.tree.parse().ok()
}
