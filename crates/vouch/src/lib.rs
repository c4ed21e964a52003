//! The `vouch` command: parses its arguments, joins sockets, files and terminals to the engines
//! below, and reports. Deliberately lacks any decision about trust or format: those are in the
//! crates `vouch-tree*`.

mod cli;
mod client_options;
mod commands;
mod copy_out;
mod exit;
pub mod export;
mod interrupt;
mod key_directory;
mod logging;
mod output;
mod passphrase;
mod progress;
pub mod serve;
mod service;
mod size;
mod statement_file;
mod throttle;
pub mod trail;
mod tree_path;
mod validity;
mod when;

pub use cli::command;
pub use exit::main;
