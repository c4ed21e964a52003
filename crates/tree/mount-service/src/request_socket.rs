//! Requests of `vouch upgrade` and `vouch refresh` to a mount, found by the mount's device number.
//!
//! A request is one line, and no line is an upgrade, as earlier versions ask for it. An answer is `ok`,
//! `refreshed` or `refused`, and its text.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vouch_daemon::failure::{At as _, Failure, Outcome};
use vouch_daemon::{private_socket, runtime_directory};

/// Listens for the mount with this device number. Only this user and root can connect.
pub(crate) fn listen(device: &str) -> io::Result<(UnixListener, PathBuf)> {
    let path = path(device)?;
    if let Some(directory) = path.parent() {
        // Others may use the directory above.
        directory.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // Of an earlier mount with this number, which was killed.
    let _ = fs::remove_file(&path);
    let listener = private_socket::bind(&path, 0o600)?;
    Ok((listener, path))
}

/// The socket's path, in `mounts` of the runtime directory.
pub(crate) fn path(device: &str) -> io::Result<PathBuf> {
    if device.is_empty() || !device.bytes().all(|b| b.is_ascii_digit() || b == b':') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the device number of the mount is not known",
        ));
    }
    let directory = runtime_directory::of_user_account();
    let missing = || {
        io::Error::new(io::ErrorKind::NotFound, "VOUCH_RUNTIME_DIR and XDG_RUNTIME_DIR are not set")
    };
    Ok(directory.ok_or_else(missing)?.join("mounts").join(device))
}

/// Whether the other side wants a refresh.
pub(crate) fn is_refresh(mut stream: &UnixStream) -> bool {
    let mut line = [0; REFRESH.len()];
    stream.set_read_timeout(Some(REQUEST_MAX)).is_ok()
        && stream.read_exact(&mut line).is_ok()
        && line == *REFRESH
}

/// Makes the mount show the newest revision that replicas have. Returns each tree's name and revision.
pub fn request_refresh(point: &Path, device: &str) -> Outcome<String> {
    let answer = ask(point, device, REFRESH)?;
    let why = match answer.trim_end().split_once(' ') {
        Some(("refreshed", trees)) => return Ok(trees.to_owned()),
        Some(("ok", _)) => {
            return Err(Failure::io(point.display(), io::Error::other("was upgraded first"))
                .cure("refresh it again"));
        }
        Some(("refused", why)) => why.to_owned(),
        _ => "the mount's process ended without an answer".to_owned(),
    };
    Err(Failure::io(point.display(), io::Error::other(why)))
}

/// Returns how long requests waited. An error says why the mount's process goes on.
pub fn request_upgrade(point: &Path, device: &str) -> Outcome<Duration> {
    let what = point.display();
    let answer = ask(point, device, b"")?;
    let why = match answer.trim_end().split_once(' ') {
        Some(("ok", pause_us)) => return Ok(Duration::from_micros(pause_us.parse().unwrap_or(0))),
        Some(("refused", why)) => {
            format!("the mount's process was not replaced, and goes on: {why}")
        }
        _ => "the supervisor ended without an answer".to_owned(),
    };
    Err(Failure::io(what, io::Error::other(why)).cure("see its log"))
}

fn ask(point: &Path, device: &str, request: &[u8]) -> Outcome<String> {
    let what = point.display();
    let socket = path(device).at(&what)?;
    let mut stream = UnixStream::connect(&socket).map_err(|error| no_supervisor(point, error))?;
    stream.set_read_timeout(Some(ANSWER_MAX)).at(&what)?;
    stream.write_all(request).and_then(|()| stream.shutdown(Shutdown::Write)).at(&what)?;
    let mut answer = String::new();
    stream.take(ANSWER_LEN_MAX).read_to_string(&mut answer).at(&what)?;
    Ok(answer)
}

fn no_supervisor(point: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::io(point.display(), io::Error::other("no supervisor answers"))
                .cure("mount it again, without --no-supervisor")
        }
        _ => Failure::io(point.display(), error)
            .cure("only the user who mounted it, and root, can upgrade or refresh a mount"),
    }
}

const REFRESH: &[u8; 8] = b"refresh\n";

/// An earlier version sends no line, and waits for the answer.
const REQUEST_MAX: Duration = Duration::from_millis(500);

const ANSWER_MAX: Duration = Duration::from_secs(180);

const ANSWER_LEN_MAX: u64 = 4096;
