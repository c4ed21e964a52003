//! The `vouch` command: parses its arguments, joins sockets, files and terminals to the engines
//! below, and reports. Deliberately lacks any decision about trust or format: those are in the
//! crates `vouch-tree*`.

mod audit_options;
mod cli;
mod client_options;
mod commands;
mod copy_out;
mod exit;
mod interrupt;
mod key_directory;
mod logging;
mod output;
mod passphrase;
mod progress;
mod size;
mod statement_file;
mod tree_path;
mod validity;
mod when;

pub use cli::command;
pub use exit::main;
