//! Parses arguments, connects sockets, files and terminals to the other crates, and reports.
//! Decisions on trust and formats are in the `vouch-tree*` crates.

mod audit_options;
mod cli;
mod client_options;
mod commands;
mod config;
mod copy_out;
#[cfg(test)]
mod document_examples; // Those of docs/ and README.md are valid.
mod exit;
mod image_options;
mod keep_options;
mod key_directory;
mod log_keys;
mod logging;
mod mount_helper;
mod output;
mod passphrase;
mod progress;
mod republish;
mod revision_options;
mod sandbox_option;
mod send_statement;
mod size;
mod start;
mod statement_file;
mod status_page;
mod tree_path;
mod validity;
mod when;
mod witness_options;

use vouch_daemon::interrupt;

pub use cli::command;
pub use start::main;
