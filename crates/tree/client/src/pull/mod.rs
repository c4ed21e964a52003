mod committed;
mod database;
mod log;
mod options;
mod run;
mod statements;
mod visitor;

pub use options::{PullOptions, PullPhase, PullProgress, PullProgressFn, PullReport};
pub use run::{pull, pull_watch};
