//! Pull: copies the newest revision of a tree into a local database.

mod committed; // The revision that the database has: what is equal there is skipped.
mod database; // Opening, committing, releasing.
mod options; // Options, progress, report.
mod run; // One pull, and a pull that repeats.
mod statements; // Revocations and forwarding pointers, passed on by a mirror.
mod visitor; // Stores each frame and lists its missing children.

pub use options::{PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport};
pub use run::{pull, pull_watch};
