//! Copies the newest revision of a tree into a local database.

mod committed;
mod database;
mod options;
mod run;
mod statements;
mod visitor; // Stores each frame and lists its missing children.

pub use options::{PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport};
pub use run::{pull, pull_watch};
