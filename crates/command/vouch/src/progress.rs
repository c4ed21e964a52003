//! Progress on a terminal; silent elsewhere.

use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Global;

pub(crate) fn spinner(global: &Global, title: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target(global));
    bar.set_style(style("{spinner} {prefix} {elapsed}  {msg}"));
    bar.set_prefix(title);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

pub(crate) fn fraction(global: &Global, title: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1), target(global));
    bar.set_style(style("{prefix} [{bar:24}] {elapsed}, {eta} left  {msg}"));
    bar.set_prefix(title);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

pub(crate) fn stage_text(now: &vouch_tree_store::Progress) -> String {
    match now.total {
        Some(total) => format!("{}: {} of {total}", now.stage, now.done),
        None => format!("{}: {}", now.stage, now.done),
    }
}

pub(crate) struct Drawer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drawer {
    /// Without a thread, work continues without progress.
    pub(crate) fn start(draw: impl Fn() + Send + 'static) -> Drawer {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("progress".into())
            .spawn(move || {
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    draw();
                }
            })
            .ok();
        Drawer { stop: Some(stop), thread }
    }
}

impl Drop for Drawer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn target(global: &Global) -> ProgressDrawTarget {
    if global.quiet || !std::io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr_with_hz(8)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const TICK: Duration = Duration::from_millis(125);
