//! Follows the logs of published trees over all replicas and witnesses.
//!
//! A [`TreeMonitor`] keeps a verified copy of one tree's log. Each round asks every replica for its
//! newest revision and its head of the log, and compares: a longer log must continue the copy, a
//! shorter one must be a beginning of it, each newest revision must be in it, and the publisher's
//! own database must know each entry. The witnesses must know no other history, and no entries that
//! no replica shows. Anything else is an [`Alarm`], with evidence in files.
//!
//! Believes no clock but its own, and no replica.

mod event;
mod expected;
mod head;
mod offer;
mod report;
mod state;
mod tree;
mod witnesses;

pub use event::{AlarmKind, Event, RevisionEvent};
pub use report::{MonitorStatus, Report, TreeStatus};
pub use state::Alarm;
pub use tree::{MonitorOptions, Round, Sink, TreeMonitor};

/// Why a tree cannot be monitored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("{step} {}: {error}", .path.display())]
    Io { step: &'static str, path: std::path::PathBuf, error: std::io::Error },
    #[error("{}: another monitor of this tree is running", .0.display())]
    Busy(std::path::PathBuf),
    #[error("{}: {what}", .path.display())]
    Damaged { path: std::path::PathBuf, what: String },
    #[error("the monitor's copy of the log: {0}")]
    Log(#[from] vouch_log_directory::Error),
    #[error("the publisher's database {}: {what}", .path.display())]
    Expected { path: std::path::PathBuf, what: String },
}

type Result<T> = std::result::Result<T, Error>;
