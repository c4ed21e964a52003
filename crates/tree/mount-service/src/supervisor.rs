//! A small process that holds the FUSE device and the journal, and starts the worker that serves.
//!
//! If the worker is killed, another one continues under the same open files. On request a worker of
//! a new version replaces it. The supervisor never reads the network or the journal.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

use vouch_daemon::failure::{At as _, Failure, Outcome};
use vouch_daemon::{interrupt, log_output};

use crate::configuration_copy::ConfigurationCopy;
use crate::link::{Link, Message, MessageKind};
use crate::request_socket;
use crate::role::{Role, arguments_with};
use crate::worker_process::{Refusal, WorkerProcess, ended, was_killed};

/// The command whose processes are supervised.
#[derive(Debug)]
pub struct Supervised {
    /// Complete, without the program's name.
    pub arguments: Vec<OsString>,
    /// For [`configuration_copy`](crate::configuration_copy).
    pub configuration: String,
    pub is_detached: bool,
}

/// Starts a worker, or as successor continues with the worker of the replaced program.
pub fn supervise(role: Role, supervised: Supervised) -> Outcome {
    match role {
        Role::Successor => Supervisor::resume(supervised)?.run(),
        _ => Supervisor::start(supervised)?.run(),
    }
}

struct Supervisor {
    program: PathBuf,
    arguments: Vec<OsString>,
    configuration: ConfigurationCopy,
    journal: File,
    /// Of a mount that has begun.
    device: Option<OwnedFd>,
    worker: WorkerProcess,
    signals: UnixStream,
    requests: Option<RequestSocket>,
    /// Whether standard error belongs to a command that has ended.
    is_detached: bool,
    /// When workers were killed, the latest last.
    deaths: Vec<Instant>,
}

struct RequestSocket {
    listener: UnixListener,
    path: PathBuf,
}

enum Event {
    Message(Message),
    WorkerEnded,
    Signal(u8),
    Request(UnixStream),
}

impl Supervisor {
    fn start(supervised: Supervised) -> Outcome<Self> {
        let Supervised { arguments, configuration, is_detached } = supervised;
        let configuration =
            ConfigurationCopy::new(&configuration).at("the mount's configuration")?;
        // Now: after a package's upgrade the running program has no path.
        let program = std::env::current_exe().at("this program")?;
        let signals = signals().at("signals")?;
        let journal = vouch_tree_mount::create_journal().at("the mount journal")?;
        let worker = WorkerProcess::spawn(
            &program,
            arguments_with(Role::Worker, &arguments),
            is_detached,
            None,
        )
        .at("the mount's worker")?;
        worker.link.send(MessageKind::Start, "", &[journal.as_fd()]).at("the mount's worker")?;
        let (requests, deaths) = (None, Vec::new());
        Ok(Self {
            program,
            arguments,
            configuration,
            journal,
            device: None,
            worker,
            signals,
            requests,
            is_detached,
            deaths,
        })
    }

    /// Continues after the supervisor's own program was replaced: the process is the same.
    fn resume(supervised: Supervised) -> Outcome<Self> {
        let Supervised { arguments, configuration, is_detached } = supervised;
        let configuration =
            ConfigurationCopy::new(&configuration).at("the mount's configuration")?;
        let program = std::env::current_exe().at("this program")?;
        let link = Link::from_standard_input().at("standard input")?;
        let incomplete = || Failure::usage("--role", "is for the program's own use");
        let message = link
            .receive()
            .at("standard input")?
            .filter(|message| message.kind == MessageKind::Supervise)
            .ok_or_else(incomplete)?;
        let pid = message.text.parse().ok().and_then(Pid::from_raw).ok_or_else(incomplete)?;
        let mut descriptors = message.descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(incomplete);
        let (device, journal, worker) = (next()?, next()?, next()?);
        if is_detached {
            log_output::leave_standard_error();
        }
        let signals = signals().at("signals")?;
        let worker = WorkerProcess { pid, link: Link::from_descriptor(worker) };
        let path = request_socket::path(&std::env::var(DEVICE_VARIABLE).unwrap_or_default()).ok();
        let requests = descriptors
            .next()
            .zip(path)
            .map(|(listener, path)| RequestSocket { listener: listener.into(), path });
        Ok(Self {
            program,
            arguments,
            configuration,
            journal: journal.into(),
            device: Some(device),
            worker,
            signals,
            requests,
            is_detached,
            deaths: Vec::new(),
        })
    }

    fn run(mut self) -> Outcome {
        let outcome = self.serve();
        if let Some(socket) = &self.requests {
            let _ = std::fs::remove_file(&socket.path);
        }
        outcome
    }

    fn serve(&mut self) -> Outcome {
        let mut stop_requested = false;
        loop {
            match self.next_event().at("the mount's supervisor")? {
                Event::Message(message) if message.kind == MessageKind::Mounted => {
                    self.device = message.descriptors.into_iter().next();
                    self.listen(&message.text);
                    if self.is_detached {
                        // As in the worker: not before it has mounted.
                        let _ = rustix::process::setsid();
                        log_output::leave_standard_error();
                    }
                }
                Event::Message(message) if message.kind == MessageKind::Refused => {
                    tracing::info!("the mount's worker: {}", message.text)
                }
                Event::Message(message) => tracing::warn!(
                    "the mount's worker: unexpected message {:?} {}",
                    message.kind,
                    message.text
                ),
                Event::WorkerEnded => {
                    let status = self.worker.wait().at("the mount's worker")?;
                    if self.device.is_none() || stop_requested || !was_killed(status) {
                        return ended(status);
                    }
                    tracing::warn!(
                        "the mount's worker was killed ({status}); another one takes over"
                    );
                    if let Err(why) = self.revive() {
                        // The kernel ends all requests now, and refuses later ones.
                        self.device = None;
                        let why =
                            io::Error::other(format!("no worker can take the mount over: {why}"));
                        return Err(Failure::io("mount", why).cure("unmount, and mount again"));
                    }
                }
                Event::Signal(signal) if i32::from(signal) == SIGUSR2 => {
                    if self.upgrade().is_ok() {
                        self.replace_own_program();
                    }
                }
                Event::Signal(signal) if i32::from(signal) == SIGHUP => {
                    log_output::reopen();
                    self.worker.kill(Signal::HUP);
                }
                Event::Signal(_) if stop_requested => self.worker.kill(Signal::KILL),
                Event::Signal(signal) => {
                    stop_requested = true;
                    if self.worker.link.send(MessageKind::Unmount, "", &[]).is_err()
                        || self.device.is_none()
                    {
                        self.worker.kill(if i32::from(signal) == SIGINT {
                            Signal::INT
                        } else {
                            Signal::TERM
                        });
                    }
                }
                Event::Request(mut stream) if request_socket::is_refresh(&stream) => {
                    if self.worker.link.send(MessageKind::Refresh, "", &[stream.as_fd()]).is_err() {
                        let _ = stream.write_all(
                            b"refused the mount's process is being replaced; try again\n",
                        );
                    }
                }
                Event::Request(mut stream) => {
                    let replaced = self.upgrade();
                    let answer = match &replaced {
                        Ok(pause) => format!("ok {}\n", pause.as_micros()),
                        Err(why) => format!("refused {}\n", why.replace('\n', " ")),
                    };
                    let _ = stream.write_all(answer.as_bytes());
                    drop(stream);
                    if replaced.is_ok() {
                        self.replace_own_program();
                    }
                }
            }
        }
    }

    fn listen(&mut self, device: &str) {
        match request_socket::listen(device) {
            Ok((listener, path)) => self.requests = Some(RequestSocket { listener, path }),
            Err(error) => tracing::info!("`vouch upgrade` cannot reach this mount: {error}"),
        }
    }

    fn next_event(&mut self) -> io::Result<Event> {
        loop {
            let mut fds = vec![
                PollFd::new(&self.worker.link, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            if let Some(socket) = &self.requests {
                fds.push(PollFd::new(&socket.listener, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                done => done?,
            };
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[1] {
                let mut signal = [0];
                self.signals.read_exact(&mut signal)?;
                return Ok(Event::Signal(signal[0]));
            }
            if ready[0] {
                return Ok(self.worker.link.receive()?.map_or(Event::WorkerEnded, Event::Message));
            }
            if let Some(socket) = self.requests.as_ref().filter(|_| ready.get(2) == Some(&true))
                && let Ok((stream, _)) = socket.listener.accept()
            {
                return Ok(Event::Request(stream));
            }
        }
    }

    /// On an error, the worker goes on. Returns how long requests waited.
    fn upgrade(&mut self) -> Result<Duration, String> {
        let begun = Instant::now();
        let replaced = self.replace_worker();
        match &replaced {
            Ok(pause) => tracing::info!(
                "another worker serves the mount; requests waited {pause:?} of {:?}",
                begun.elapsed()
            ),
            Err(why) => tracing::warn!("the mount's worker is not replaced: {why}"),
        }
        replaced
    }

    fn replace_worker(&mut self) -> Result<Duration, String> {
        if self.device.is_none() {
            return Err("it is not mounted yet".into());
        }
        let next = self.prepare(START_MAX, None).map_err(|refusal| refusal.to_string())?;
        let is_exclusive = next.message.text == EXCLUSIVE;
        let next = next.worker;
        let paused = Instant::now();
        let stopped =
            self.worker.ask(MessageKind::Stop, "", MessageKind::Stopped, STOP_MAX, &self.signals);
        let was_killed = match stopped {
            Ok(_) => false,
            Err(Refusal::Ended) => true,
            Err(refusal) => {
                next.end();
                let _ = self.worker.link.send(MessageKind::Resume, "", &[]);
                return Err(refusal.to_string());
            }
        };
        if is_exclusive || was_killed {
            // The audit trail has one writer.
            self.end_worker();
        }
        let text = if was_killed { KILLED } else { "" };
        if let Err(refusal) =
            next.ask(MessageKind::TakeOver, text, MessageKind::Ready, TAKE_OVER_MAX, &self.signals)
        {
            next.end();
            if is_exclusive || was_killed {
                self.revive()?;
            } else {
                let _ = self.worker.link.send(MessageKind::Resume, "", &[]);
            }
            return Err(refusal.to_string());
        }
        if !is_exclusive && !was_killed {
            let _ = self.worker.link.send(MessageKind::End, "", &[]);
        }
        let begun =
            next.ask(MessageKind::Begin, "", MessageKind::Serving, TAKE_OVER_MAX, &self.signals);
        let pause = paused.elapsed();
        let before = std::mem::replace(&mut self.worker, next);
        before.await_end(END_MAX);
        match begun {
            Ok(_) => Ok(pause),
            Err(refusal) => {
                self.worker.kill(Signal::KILL);
                let _ = self.worker.wait();
                self.revive()?;
                Err(refusal.to_string())
            }
        }
    }

    fn revive(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        self.deaths.retain(|at| at.elapsed() < DEATHS_PERIOD);
        self.deaths.push(begun);
        if self.deaths.len() > DEATHS_MAX {
            return Err(format!("{DEATHS_MAX} workers were killed within {DEATHS_PERIOD:?}"));
        }
        let mut pause = REVIVAL_PAUSE;
        loop {
            let refusal = match self.revive_once(REVIVE_MAX.saturating_sub(begun.elapsed())) {
                Ok(worker) => {
                    self.worker = worker;
                    tracing::warn!("another worker serves the mount after {:?}", begun.elapsed());
                    return Ok(());
                }
                Err(refusal) => refusal,
            };
            if is_stopped_by_signal(&mut self.signals, pause) {
                return Err(Refusal::Interrupted.to_string());
            }
            if begun.elapsed() >= REVIVE_MAX {
                return Err(refusal.to_string());
            }
            tracing::warn!(
                "a worker could not take the mount over, the next one starts: {refusal}"
            );
            pause = (pause * 2).min(REVIVAL_PAUSE_MAX);
        }
    }

    fn revive_once(&self, limit: Duration) -> Result<WorkerProcess, Refusal> {
        let next = self.prepare(limit, Some(&self.configuration))?.worker;
        let taken = next
            .ask(MessageKind::TakeOver, KILLED, MessageKind::Ready, TAKE_OVER_MAX, &self.signals)
            .and_then(|_| {
                next.ask(MessageKind::Begin, "", MessageKind::Serving, TAKE_OVER_MAX, &self.signals)
            });
        match taken {
            Ok(_) => Ok(next),
            Err(refusal) => {
                next.end();
                Err(refusal)
            }
        }
    }

    /// Without a copy of the configuration, the worker reads the files.
    fn prepare(
        &self,
        limit: Duration,
        configuration: Option<&ConfigurationCopy>,
    ) -> Result<Prepared, Refusal> {
        let device =
            self.device.as_ref().ok_or_else(|| Refusal::Refused("it is not mounted".into()))?;
        let arguments = arguments_with(Role::Worker, &self.arguments);
        let worker =
            WorkerProcess::spawn(&self.program, arguments, self.is_detached, configuration)
                .map_err(|error| {
                    Refusal::Refused(format!("{}: {error}", self.program.display()))
                })?;
        let descriptors = [device.as_fd(), self.journal.as_fd()];
        match worker.ask_with(
            MessageKind::Prepare,
            "",
            &descriptors,
            MessageKind::Prepared,
            limit,
            &self.signals,
        ) {
            Ok(message) => Ok(Prepared { worker, message }),
            Err(refusal) => {
                worker.end();
                Err(refusal)
            }
        }
    }

    fn end_worker(&self) {
        let _ = self.worker.link.send(MessageKind::End, "", &[]);
        self.worker.await_end(END_MAX);
    }

    /// In this process. On an error, this program goes on.
    fn replace_own_program(&self) {
        let Some(device) = &self.device else { return };
        let arguments = arguments_with(Role::Successor, &self.arguments);
        let exec = || -> io::Result<()> {
            let (ours, theirs) = Link::pair()?;
            let mut descriptors =
                vec![device.as_fd(), self.journal.as_fd(), self.worker.link.as_fd()];
            descriptors.extend(self.requests.iter().map(|socket| socket.listener.as_fd()));
            ours.send(
                MessageKind::Supervise,
                &self.worker.pid.as_raw_nonzero().to_string(),
                &descriptors,
            )?;
            let number = self
                .requests
                .as_ref()
                .and_then(|socket| socket.path.file_name())
                .unwrap_or_default();
            let mut command = Command::new(&self.program);
            command
                .args(arguments)
                .env(DEVICE_VARIABLE, number)
                .stdin(Stdio::from(theirs.into_descriptor()));
            Err(command.exec())
        };
        if let Err(error) = exec() {
            tracing::warn!("{}: {error}; the supervisor keeps its version", self.program.display());
        }
    }
}

/// Waits for `pause` or a signal. Another worker reads everything anew, so that only a signal to end
/// matters.
fn is_stopped_by_signal(signals: &mut UnixStream, pause: Duration) -> bool {
    let mut fds = [PollFd::new(&*signals, PollFlags::IN)];
    let is_ready =
        poll(&mut fds, Some(&pause.try_into().unwrap_or_default())).is_ok_and(|ready| ready > 0);
    let mut signal = [0];
    is_ready
        && signals.read_exact(&mut signal).is_ok()
        && ![SIGHUP, SIGUSR2].contains(&i32::from(signal[0]))
}

struct Prepared {
    worker: WorkerProcess,
    message: Message,
}

fn signals() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    interrupt::become_daemon()?;
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR2] {
        let write = write.try_clone()?;
        let mut signals = signal_hook::iterator::Signals::new([signal])?;
        let forward = move || {
            for _ in signals.forever() {
                if (&write).write_all(&[signal as u8]).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(forward)?;
    }
    Ok(read)
}

pub(crate) const EXCLUSIVE: &str = "exclusive";
pub(crate) const KILLED: &str = "killed";

/// Name of the upgrade socket, for the supervisor's next program.
const DEVICE_VARIABLE: &str = "VOUCH_MOUNT_DEVICE";

/// Longest start of a new worker: it opens the trees.
const START_MAX: Duration = Duration::from_secs(60);

/// Longer than the worker's own limit of ten seconds.
const STOP_MAX: Duration = Duration::from_secs(25);

const TAKE_OVER_MAX: Duration = Duration::from_secs(20);
const END_MAX: Duration = Duration::from_secs(5);

/// Longest time that requests wait for another worker after a kill; then they fail.
const REVIVE_MAX: Duration = Duration::from_secs(60);

/// Between two workers; it doubles.
const REVIVAL_PAUSE: Duration = Duration::from_millis(500);
const REVIVAL_PAUSE_MAX: Duration = Duration::from_secs(8);

/// A mount whose workers die again and again is given up.
const DEATHS_MAX: usize = 200;
const DEATHS_PERIOD: Duration = Duration::from_secs(600);
