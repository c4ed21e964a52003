//! The `vouch` command: parses its arguments, joins sockets, files and terminals to the engines below, and reports.
//! Deliberately lacks any decision about trust or format: those are in the crates `vouch-tree*`.

mod cli;
mod commands;
mod exit;
mod interrupt;
mod logging;
mod output;
mod progress;
mod when;

pub use cli::command;
pub use exit::main;
