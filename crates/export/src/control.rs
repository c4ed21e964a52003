//! The socket in the state directory by which `vouch export status` and `vouch export reload` reach
//! the server: one line asks, one line of JSON answers. Mode 0600, as the directory is its owner's
//! alone.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::monitoring::report::Report;
use crate::monitoring::status::Status;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What there is to tell.
    Status,
    /// Read the exports anew.
    Reload,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Question::Status`].
    Status(Box<Status>),
    /// The new list is in force; this is to be said of it.
    Reloaded(Vec<String>),
    /// It could not be done; the old list is in force.
    Failed(String),
}

/// Listens. A socket that a server left which is gone is replaced: the caller holds the lock of the
/// directory.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers until the server stops. One asker at a time: they are people and scripts of one machine.
pub(super) fn run(listener: &UnixListener, report: &Arc<Report>, reload: &dyn Fn() -> Result<Vec<String>, String>) {
    while !report.driver.stop.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((socket, _)) => {
                if let Err(error) = answer(&socket, report, reload) {
                    tracing::debug!(%error, "a question by the control socket was not answered");
                }
            }
            // Not worth a wake-up mechanism of its own: who types a command waits a tenth of a second.
            Err(_) => std::thread::sleep(STEP),
        }
    }
}

fn answer(socket: &UnixStream, report: &Report, reload: &dyn Fn() -> Result<Vec<String>, String>) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(socket.take(QUESTION_LEN_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(Question::Status) => Answer::Status(Box::new(report.status())),
        Ok(Question::Reload) => reload().map_or_else(Answer::Failed, Answer::Reloaded),
        Err(error) => Answer::Failed(format!("not a question: {error}")),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    (&*socket).write_all(&bytes)
}

/// Sends a question to a running server.
///
/// # Errors
/// If no server listens, or it does not answer in time.
pub fn ask(path: &Path, question: Question) -> io::Result<Answer> {
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(RELOAD_PATIENCE))?;
    let mut line = serde_json::to_vec(&question)?;
    line.push(b'\n');
    socket.write_all(&line)?;
    let mut text = Vec::new();
    BufReader::new(socket).read_until(b'\n', &mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

const STEP: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);
/// A reload asks name services.
const RELOAD_PATIENCE: Duration = Duration::from_secs(120);
const QUESTION_LEN_MAX: u64 = 1024;
