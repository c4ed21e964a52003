//! The processes of a mount, for `vouch mount` and `vouch upgrade`. The file system itself is
//! [`vouch_tree_mount`].
//!
//! A supervisor holds the FUSE device and starts a worker, which serves. Another worker takes over
//! after a kill or for an upgrade. SECURITY.md says what the supervisor trusts.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod audit; // The audit trail of a mount.
mod background; // Starts the command again behind the terminal.
mod configuration_copy; // The configuration, for workers after a kill.
mod link; // Messages between supervisor and worker, with descriptors.
mod plan; // What to mount, and what the command supplies.
mod report; // Status, health and metrics.
mod request_socket; // The socket by which `vouch upgrade` reaches a supervisor.
mod role; // What a process does for the mount.
mod serve; // Mounts or takes over, then serves until the end.
mod supervisor; // The process that replaces workers.
mod worker; // The worker's side of the hand-over.
mod worker_process; // The supervisor's side: a worker as a child process.

pub use background::start_in_background;
pub use configuration_copy::configuration_copy;
pub use plan::{MountPlan, MountSource, PlannedTree};
pub use request_socket::{request_refresh, request_upgrade};
pub use role::Role;
pub use serve::run;
pub use supervisor::{Supervised, supervise};
pub use worker::report_failure;
