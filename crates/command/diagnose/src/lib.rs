//! The state of a machine, for `vouch status`, `vouch check` and `vouch bugreport`.
//!
//! [`MachineStatus`] asks the daemons, and [`status_tables`] shows their answers. The checks name
//! known faults with their cures; docs/troubleshooting.md lists the faults by name. [`bug_report`]
//! collects what a maintainer needs, and nothing secret.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod bug_report;
mod clock; // The clock of this machine.
mod export; // An export: its state directory, process, address and keytab.
mod finding; // What a check has found.
mod gateway; // A gateway: its tree and log.
mod jobs; // The broker and the agent of `vouch jobs`.
mod local; // Device, state directory, disk cache.
mod machine_status; // What the daemons of the machine say.
mod mount; // A mount: its process, trees and cache.
mod network; // The way to a replica: name resolution and the port.
pub mod status_tables;
mod tree; // A tree: its replicas, their revisions, a part of the data.
mod user; // A user, as an export looks it up.

pub use export::{check as check_export, check_keytab};
pub use finding::{Fault, Finding, Findings};
pub use gateway::check as check_gateway;
pub use jobs::{check_agent as check_jobs_agent, check_broker as check_jobs_broker};
pub use local::{ClientSettings, check as check_machine, check_cache, check_state};
pub use machine_status::{Daemon, MachineStatus, Unanswered};
pub use mount::check as check_mount;
pub use tree::{Extent, check as check_tree};
pub use user::check_user;

fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

fn now_s() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
