//! Each has its own process group, so that Ctrl-C does not end it before cleanup.

use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::StopFlag;

pub(crate) struct ChildProcess(Child);

impl ChildProcess {
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        running().push(child.id());
        Ok(Self(child))
    }

    pub(crate) fn output(
        command: &mut Command,
        stop: &StopFlag,
        last: Duration,
    ) -> io::Result<Option<Output>> {
        let mut helper = Self::start(command)?;
        let (out, err) = (gather(helper.stdout.take()), gather(helper.stderr.take()));
        let mut stop_seen = None;
        let status = loop {
            if let Some(status) = helper.try_wait()? {
                break status;
            }
            if stop.must_hurry() && stop_seen.get_or_insert_with(Instant::now).elapsed() > last {
                helper.kill()?;
                helper.wait()?;
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [stdout, stderr] = [out, err].map(|text| text.join().unwrap_or_default());
        Ok(Some(Output { status, stdout, stderr }))
    }
}

/// In another thread, so that the child does not block on its pipe.
fn gather(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = from.map(|mut from| from.read_to_end(&mut text));
        text
    })
}

impl Deref for ChildProcess {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for ChildProcess {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let id = self.0.id();
        running().retain(|other| *other != id);
    }
}

pub(super) struct CleanupHook(fn());

impl CleanupHook {
    pub(super) fn at_the_end(undo: fn()) -> Self {
        undoing().push(undo);
        Self(undo)
    }
}

impl Drop for CleanupHook {
    fn drop(&mut self) {
        let mut all = undoing();
        let at = all.iter().position(|undo| std::ptr::fn_addr_eq(*undo, self.0));
        at.map(|at| all.remove(at));
    }
}

/// For a process that exits at once: reverts all changes to the machine.
pub fn terminate_all() {
    undo_all(&UNDOING);
    for pid in running().drain(..).filter_map(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process_group(pid, Signal::TERM);
    }
}

fn undo_all(list: &Mutex<Vec<fn()>>) {
    let all = std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner));
    all.into_iter().rev().for_each(|undo| undo());
}

fn running() -> MutexGuard<'static, Vec<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn undoing() -> MutexGuard<'static, Vec<fn()>> {
    UNDOING.lock().unwrap_or_else(PoisonError::into_inner)
}

static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static UNDOING: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

pub(super) fn wait(child: &mut Child, stop: &StopFlag) -> io::Result<ExitStatus> {
    // Short pauses at first, because a long one would be measured.
    for pause_us in (0u64..).map(|turn| (50 << turn.min(5)).min(1000)) {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.is_set() {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(Duration::from_micros(pause_us));
    }
    unreachable!("the turns do not end")
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn child_has_its_own_process_group() {
        let mut helper = ChildProcess::start(Command::new("sleep").arg("60")).expect("sleep");
        let pid = Pid::from_raw(helper.id().cast_signed());
        assert_eq!(rustix::process::getpgid(pid).ok(), pid);
        assert!(running().contains(&helper.id()));
        let id = helper.id();
        helper.kill().expect("the process lives");
        helper.wait().expect("the thread ends");
        drop(helper);
        assert!(!running().contains(&id));
    }

    #[test]
    fn dropped_hook_is_unregistered() {
        fn never() {
            unreachable!("the owner reverts the change");
        }
        let known =
            || undoing().iter().filter(|undo| std::ptr::fn_addr_eq(**undo, never as fn())).count();
        let (kept, other) = (CleanupHook::at_the_end(never), CleanupHook::at_the_end(never));
        assert_eq!(known(), 2);
        drop(other);
        assert_eq!(known(), 1);
        drop(kept);
        assert_eq!(known(), 0);
    }

    #[test]
    fn hooks_run_once_in_reverse_order() {
        static CHANGED: Mutex<Vec<fn()>> = Mutex::new(Vec::new());
        static UNDONE: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        fn undone(what: &'static str) {
            assert!(
                CHANGED.try_lock().is_ok_and(|list| list.is_empty()),
                "the list is unlocked and empty"
            );
            UNDONE.lock().expect("no thread panicked with the lock held").push(what);
        }
        CHANGED
            .lock()
            .expect("no thread panicked with the lock held")
            .extend([(|| undone("first")) as fn(), || undone("second")]);
        undo_all(&CHANGED);
        undo_all(&CHANGED);
        assert_eq!(
            *UNDONE.lock().expect("no thread panicked with the lock held"),
            ["second", "first"]
        );
    }

    #[test]
    fn output_is_returned_and_endless_child_is_killed() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo out; echo err >&2; exit 3"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = ChildProcess::output(&mut command, &StopFlag::default(), Duration::ZERO)
            .expect("sh")
            .expect("the thread ends");
        assert_eq!(
            (output.status.code(), &output.stdout[..], &output.stderr[..]),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
        let stop = StopFlag::default();
        stop.set();
        let ended = ChildProcess::output(
            Command::new("sleep").arg("3600"),
            &stop,
            Duration::from_millis(50),
        )
        .expect("sleep");
        assert!(ended.is_none());
    }
}
