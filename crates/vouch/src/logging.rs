//! Sets up the log: to standard error, as text or as JSON. Owns the default levels of each kind of command.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::{Global, LogFormat};
use crate::exit::{Failure, Outcome};

/// Starts logging for this process; called once.
///
/// # Errors
/// A failure of kind usage when the filter is malformed.
pub(crate) fn start(global: &Global) -> Outcome {
    let directives = global.log_level.as_deref().unwrap_or(DEFAULT_LEVEL);
    let filter = EnvFilter::builder().parse(directives).map_err(|error| {
        Failure::usage(format_args!("--log-level {directives}"), error).cure("use off, error, warn, info, debug or trace")
    })?;
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match global.log_format {
        LogFormat::Text => base.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        LogFormat::Json => base.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::usage("log", error))
}

/// Warnings only: what a command does is its output, not its log. Long-running commands raise it in their own help.
const DEFAULT_LEVEL: &str = "warn";
