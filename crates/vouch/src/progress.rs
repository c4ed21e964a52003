//! Progress on a terminal, silence elsewhere.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Global;

/// A spinner with a message, shown only where standard error is a terminal, and only after the first refresh interval.
pub(crate) fn spinner(global: &Global, title: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(global));
    bar.set_style(style("{spinner} {prefix} {elapsed}  {msg}"));
    bar.set_prefix(title);
    bar.enable_steady_tick(TICK);
    bar
}

/// A bar over `total` bytes.
pub(crate) fn bytes(global: &Global, title: &'static str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), target(global));
    bar.set_style(style("{prefix} {bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}"));
    bar.set_prefix(title);
    bar
}

fn target(global: &Global) -> ProgressDrawTarget {
    if global.quiet || !std::io::stderr().is_terminal() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(8) }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const TICK: Duration = Duration::from_millis(125);
