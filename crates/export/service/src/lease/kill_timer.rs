//! The kernel kills the process at the end of its lease, also while it is stopped, frozen or starved
//! and so cannot check the lease itself.

use std::io;

use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

/// Dropping it disarms the timer.
pub(super) struct KillTimer(Timer);

impl KillTimer {
    pub(super) fn new() -> io::Result<Self> {
        let kill = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 });
        Ok(KillTimer(Timer::new(ClockId::CLOCK_BOOTTIME, kill)?))
    }

    /// On [`clock_ns`](super::serving_right::clock_ns).
    pub(super) fn set(&mut self, at_ns: u64) -> io::Result<()> {
        let (seconds, nanos) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let at = TimeSpec::new(i64::try_from(seconds).unwrap_or(i64::MAX), nanos as _);
        Ok(self.0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::super::serving_right::clock_ns;
    use super::*;

    const CHILD: &str = "VOUCH_TEST_KILL_TIMER";

    /// The child stops itself, so only the kernel can end it.
    #[test]
    fn stopped_process_is_killed_at_the_end() {
        if std::env::var_os(CHILD).is_some() {
            let mut timer = KillTimer::new().unwrap();
            timer.set(clock_ns() + 300_000_000).unwrap();
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
                .unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
            panic!("the timer did not kill the process");
        }
        let test = "lease::kill_timer::tests::stopped_process_is_killed_at_the_end";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child
            .args(["--exact", test])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        assert_eq!(child.status().unwrap().signal(), Some(9));
    }
}
