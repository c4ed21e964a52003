//! The ways into and out of audit trails, for `vouch audit`. The trail itself is [`vouch_audit`].
//!
//! | module | content |
//! |---|---|
//! | [`kernel_events`] | records the kernel's audit events, from auditd's log or by netlink |
//! | [`send`] | sends records to a syslog collector or to NATS, and remembers the position |
//! | [`trail_log`] | logs the seals of trails in a transparency log, and verifies trails by it |
//! | [`report`] | counts by user, file and client, as text, JSON or HTML |
//! | [`record_text`] | a record as one line for people |

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod kernel_events;
pub mod record_text;
pub mod report;
pub mod send;
pub mod trail_log;
