//! What every service process of Vouch shares. It knows nothing of NFS or of the replica protocol.
//!
//! | module | content |
//! |---|---|
//! | [`service_manager`] | readiness messages to systemd, and the sockets that it passes |
//! | [`listener`] | listening TCP sockets, one for each thread |
//! | [`metrics_page`] | the HTTP page with metrics and health |
//! | [`rate_limit`] | a rate limiter by address, for log lines and audit records |
//! | [`audit_trail`] | the audit trail of a service: options, rules in force, administrative records |
//! | [`printable`] | file names for terminals, logs and JSON |
//! | [`sandbox`] | least privilege: files, sockets, signals, capabilities |

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod audit_trail;
pub mod listener;
pub mod metrics_page;
pub mod printable;
pub mod rate_limit;
pub mod sandbox;
pub mod service_manager;
