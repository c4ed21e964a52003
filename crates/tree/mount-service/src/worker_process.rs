use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use vouch_daemon::failure::{Failure, Outcome, Why};

use crate::configuration_copy::ConfigurationCopy;
use crate::link::{Link, Message, MessageKind};

pub(crate) struct WorkerProcess {
    pub(crate) pid: Pid,
    pub(crate) link: Link,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the process ended; its reason is in the log")]
    Ended,
    #[error("no answer within {0:?}")]
    TooLate(Duration),
    #[error("{0}")]
    Refused(String),
    #[error("a signal came first")]
    Interrupted,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl WorkerProcess {
    pub(crate) fn spawn(
        program: &Path,
        arguments: Vec<OsString>,
        is_detached: bool,
        configuration: Option<&ConfigurationCopy>,
    ) -> io::Result<Self> {
        let (link, theirs) = Link::pair()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::from(theirs.into_descriptor()));
        if !is_detached {
            // Ctrl-C reaches the supervisor alone.
            command.process_group(0);
        }
        let child = match configuration {
            Some(copy) => copy.spawn(&mut command)?,
            None => command.spawn()?,
        };
        let pid = Pid::from_child(&child);
        Ok(Self { pid, link })
    }

    pub(crate) fn ask(
        &self,
        kind: MessageKind,
        text: &str,
        answer: MessageKind,
        limit: Duration,
        signals: &UnixStream,
    ) -> Result<Message, Refusal> {
        self.ask_with(kind, text, &[], answer, limit, signals)
    }

    pub(crate) fn ask_with(
        &self,
        kind: MessageKind,
        text: &str,
        descriptors: &[BorrowedFd<'_>],
        answer: MessageKind,
        limit: Duration,
        signals: &UnixStream,
    ) -> Result<Message, Refusal> {
        match self.link.send(kind, text, descriptors) {
            // A process that has ended may have left its reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Err(match self.link.receive() {
                    Ok(Some(message)) => Refusal::Refused(message.text),
                    _ => Refusal::Ended,
                });
            }
            Err(_) => return Err(Refusal::Ended),
            Ok(()) => {}
        }
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Refusal::TooLate(limit));
            }
            let mut fds =
                [PollFd::new(&self.link, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut fds, Some(&left.try_into().unwrap_or_default())) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done.map_err(io::Error::from)?,
            };
            if !fds[0].revents().is_empty() {
                return match self.link.receive()? {
                    None => Err(Refusal::Ended),
                    Some(message) if message.kind == answer => Ok(message),
                    Some(message) => Err(Refusal::Refused(message.text)),
                };
            }
            if !fds[1].revents().is_empty() {
                return Err(Refusal::Interrupted);
            }
        }
    }

    pub(crate) fn kill(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                done => {
                    return Ok(ExitStatus::from_raw(
                        done?.map_or(0, |(_, status)| status.as_raw()),
                    ));
                }
            }
        }
    }

    pub(crate) fn end(self) {
        self.kill(Signal::KILL);
        let _ = self.wait();
    }

    pub(crate) fn await_end(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
        self.kill(Signal::KILL);
        let _ = self.wait();
    }
}

pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal().is_some() || status.code() == Some(PANIC_CODE)
}

pub(crate) fn ended(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::new("mount", Why::Reported(code))),
        None => {
            Err(Failure::io("mount", io::Error::other(format!("the worker ended with {status}"))))
        }
    }
}

/// Rust's exit code after a panic.
const PANIC_CODE: i32 = 101;
