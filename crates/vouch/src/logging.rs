//! Sets up the log: to standard error or a file, as text or as JSON. Owns the default levels of each kind of command.

use std::fs::File;
use std::io::IsTerminal as _;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::cli::{Global, LogFormat};
use crate::exit::{At as _, Failure, Outcome};

/// Starts logging for this process; called once.
///
/// # Errors
/// A failure of kind usage when the filter is malformed.
pub(crate) fn start(global: &Global) -> Outcome {
    let directives = global.log_level.as_deref().unwrap_or(DEFAULT_LEVEL);
    let filter = EnvFilter::builder().parse(directives).map_err(|error| {
        Failure::usage(format_args!("--log-level {directives}"), error).cure("use off, error, warn, info, debug or trace")
    })?;
    let (writer, colour): (BoxMakeWriter, bool) = match &global.log_file {
        None => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
        Some(path) => (BoxMakeWriter::new(Arc::new(File::options().create(true).append(true).open(path).at(path.display())?)), false),
    };
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = match global.log_format {
        LogFormat::Text => base.with_ansi(colour).with_target(false).try_init(),
        LogFormat::Json => base.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::usage("log", error))
}

/// Warnings only: what a command does is its output, not its log. Long-running commands raise it in their own help.
const DEFAULT_LEVEL: &str = "warn";
