//! The control socket in the state directory, for `vouch export status` and `reload`.
//!
//! Request and answer are a line of JSON each. The socket has mode 0600.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    Status,
    Reload,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Status(Box<Status>),
    /// Warnings about the new list, which is in force.
    Reloaded(Vec<String>),
    /// After a failed reload the old list stays in force.
    Failed(String),
}

/// Replaces an old socket: the caller has the lock of the directory.
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

/// One request at a time, until the server stops.
pub(super) fn run(listener: &UnixListener, report: &Arc<Report>, reload: &dyn Fn() -> Result<Vec<String>, String>) {
    while !report.driver.stop.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((socket, _)) => {
                if let Err(error) = answer(&socket, report, reload) {
                    tracing::debug!(%error, "control socket: a request was not answered");
                }
            }
            // A user who types a command can wait a tenth of a second.
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
        Err(error) => Answer::Failed(format!("malformed request: {error}")),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    (&*socket).write_all(&bytes)
}

/// Sends a request to a running server.
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
const RELOAD_PATIENCE: Duration = Duration::from_secs(120);
const QUESTION_LEN_MAX: u64 = 1024;
