//! To standard error, a file or, for background processes, the system's log.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};
use vouch_daemon::log_output::{self, LogOutput, is_journal};
use vouch_daemon::recent_errors;

use crate::cli::{Global, LogFormat};
use crate::exit::{Failure, Outcome};

/// Called once.
pub(crate) fn start(global: &Global) -> Outcome {
    let directives = global
        .log_level
        .as_deref()
        .unwrap_or_else(|| if is_journal() { JOURNAL_LEVEL } else { DEFAULT_LEVEL });
    let filter = EnvFilter::builder().parse(format!("{QUIET},{directives}")).map_err(|error| {
        Failure::usage(format_args!("--log-level {directives}"), error)
            .cure("use off, error, warn, info, debug or trace")
    })?;
    let colour = global.log_file.is_none() && io::stderr().is_terminal();
    if let Some(path) = &global.log_file {
        log_output::write_to_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(path.display(), error)
                .cure("create its directory (`install -d -m 750 DIR`)"),
            _ => Failure::new(path.display(), error),
        })?;
    }
    // A broken pipe reported to that same pipe would end the process.
    let layer =
        tracing_subscriber::fmt::layer().with_writer(|| LogOutput).log_internal_errors(false);
    let layer = match global.log_format {
        LogFormat::Text => layer.with_ansi(colour).with_target(false).with_filter(filter).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let started =
        tracing_subscriber::registry().with(layer).with(recent_errors::layer()).try_init();
    started.map_err(|error| Failure::usage("log", error))
}

/// It warns about mounts that we have unmounted ourselves.
const QUIET: &str = "fuser::session=error";

const JOURNAL_LEVEL: &str = "info";

const DEFAULT_LEVEL: &str = "warn";
