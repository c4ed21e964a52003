//! Parts that all service processes share. They know nothing of NFS or of the replica protocol.
//!
//! | module | content |
//! |---|---|
//! | [`service_manager`] | readiness messages to systemd, and the sockets that it passes |
//! | [`listener`] | listening TCP sockets, one for each thread |
//! | [`status_server`] | metrics, health and status over HTTP, by TCP and by a Unix socket |
//! | [`status_socket`], [`runtime_directory`] | the Unix sockets, and where they are |
//! | [`private_socket`] | Unix sockets with their mode from the start |
//! | [`status`], [`status_client`] | the status of a daemon, and its client |
//! | [`recent_errors`] | warnings and errors of the last hour |
//! | [`exposition`] | writer of Prometheus' text format |
//! | [`rate_limit`] | a rate limiter by address, for log lines and audit records |
//! | [`audit_trail`] | the audit trail of a service: options, rules in force, administrative records |
//! | [`failure`] | a failure as a user reads it: what, why, cure |
//! | [`interrupt`] | SIGINT, SIGTERM and SIGHUP: clean-ups, and the end of long work |
//! | [`log_output`] | log lines to standard error or to the system's log |
//! | [`printable`] | file names for terminals, logs and JSON |
//! | [`table`] | aligned tables for terminals |
//! | [`unacknowledged`] | sent bytes that the other system has not acknowledged |
//! | [`sandbox`] | least privilege: files, sockets, signals, capabilities |

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod audit_trail;
pub mod exposition;
pub mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod interrupt;
pub mod listener;
pub mod log_output;
pub mod printable;
pub mod private_socket;
pub mod rate_limit;
pub mod recent_errors;
pub mod runtime_directory;
pub mod sandbox;
pub mod service_manager;
pub mod status;
pub mod status_client;
pub mod status_server;
pub mod status_socket;
pub mod table;
pub mod unacknowledged;
