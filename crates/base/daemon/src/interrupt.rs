//! The first SIGINT, SIGTERM or SIGHUP runs the registered clean-ups and ends the process with code
//! 130. Replicas, mounts and publications stop gracefully at the first signal and end at the second. In a daemon, SIGHUP reads files
//! anew and opens the log file again (daemon(7)).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::log_output;

/// From now on a write beyond `RLIMIT_FSIZE` (`LimitFSIZE=` of a unit) fails with EFBIG. By default it
/// ends the process, and a client chooses the length of its file. Programs started later have the
/// default again.
pub fn survive_file_size_limit() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(|_| ())
}

pub fn watch() -> io::Result<()> {
    watch_with(hold()?, None::<fn()>)
}

/// From now on SIGHUP ends this process no longer, and SIGUSR1 does nothing. Called by each daemon
/// before its signals are watched.
pub fn become_daemon() -> io::Result<()> {
    IS_DAEMON.store(true, Ordering::SeqCst);
    // SIGHUP also before its thread watches it.
    [SIGHUP, SIGUSR1]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::default()).map(|_| ()))
}

/// As [`watch`], but SIGHUP makes the process read a configuration anew.
pub fn watch_and_reload(reload: impl Fn() + Send + 'static) -> io::Result<()> {
    hold()?.watch_and_reload(reload)
}

/// Signals from now on wait for [`HeldSignals::watch_and_reload`].
pub fn hold() -> io::Result<HeldSignals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP]).map(HeldSignals)
}

pub struct HeldSignals(Signals);

impl HeldSignals {
    pub fn watch_and_reload(self, reload: impl Fn() + Send + 'static) -> io::Result<()> {
        watch_with(self, Some(reload))
    }
}

fn watch_with(
    HeldSignals(mut signals): HeldSignals,
    reload: Option<impl Fn() + Send + 'static>,
) -> io::Result<()> {
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP && (IS_DAEMON.load(Ordering::SeqCst) || reload.is_some()) {
                log_output::reopen();
                reload.iter().for_each(|reload| reload());
                continue;
            }
            let again = REQUESTED.swap(true, Ordering::SeqCst);
            // Read before the clean-ups: the signal may be released again during them.
            let stops_gracefully = GRACEFUL_STOPS.load(Ordering::SeqCst) > 0;
            run_clean_ups();
            if again || !stops_gracefully {
                std::process::exit(EXIT_CODE);
            }
        }
    })?;
    Ok(())
}

/// Registers a clean-up for interruptions until the guard is dropped. Dropping it does not run the
/// clean-up.
pub fn on_interrupt(clean_up: impl FnOnce() + Send + 'static) -> CleanUp {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    clean_ups().push((number, Box::new(clean_up)));
    CleanUp(number)
}

/// The first signal runs `notify` and sets `requested`. A second one ends the process.
pub fn stop_gracefully(notify: impl FnOnce() + Send + 'static) -> GracefulStop {
    // Register first: otherwise a signal between the two would stop nothing.
    let clean_up = on_interrupt(notify);
    GRACEFUL_STOPS.fetch_add(1, Ordering::SeqCst);
    GracefulStop { _clean_up: clean_up }
}

pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// While this lives, the first signal does not end the process.
pub struct GracefulStop {
    _clean_up: CleanUp,
}

impl Drop for GracefulStop {
    fn drop(&mut self) {
        GRACEFUL_STOPS.fetch_sub(1, Ordering::SeqCst);
    }
}

pub struct CleanUp(usize);

impl Drop for CleanUp {
    fn drop(&mut self) {
        clean_ups().retain(|(number, _)| *number != self.0);
    }
}

const EXIT_CODE: i32 = 130;

fn run_clean_ups() {
    let waiting = std::mem::take(&mut *clean_ups());
    for (_, clean_up) in waiting.into_iter().rev() {
        clean_up();
    }
}

/// A panic in a clean-up leaves the list intact.
fn clean_ups() -> std::sync::MutexGuard<'static, Vec<(usize, CleanUpFn)>> {
    CLEAN_UPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

type CleanUpFn = Box<dyn FnOnce() + Send>;

static CLEAN_UPS: Mutex<Vec<(usize, CleanUpFn)>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);
static GRACEFUL_STOPS: AtomicUsize = AtomicUsize::new(0);
static IS_DAEMON: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);
