//! Found by the device number of the mount.

use std::fs;
use std::io::{self, Read as _};
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
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the device number of the mount is not known"));
    }
    let directory = runtime_directory::of_user_account();
    let missing = || io::Error::new(io::ErrorKind::NotFound, "VOUCH_RUNTIME_DIR and XDG_RUNTIME_DIR are not set");
    Ok(directory.ok_or_else(missing)?.join("mounts").join(device))
}

/// Returns how long requests waited. An error says why the mount's process goes on.
pub fn request_upgrade(point: &Path, device: &str) -> Outcome<Duration> {
    let what = point.display();
    let socket = path(device).at(&what)?;
    let mut stream = UnixStream::connect(&socket).map_err(|error| no_supervisor(point, error))?;
    stream.set_read_timeout(Some(ANSWER_MAX)).at(&what)?;
    let mut answer = String::new();
    stream.by_ref().take(ANSWER_LEN_MAX).read_to_string(&mut answer).at(&what)?;
    let why = match answer.trim_end().split_once(' ') {
        Some(("ok", pause_us)) => return Ok(Duration::from_micros(pause_us.parse().unwrap_or(0))),
        Some(("refused", why)) => format!("the mount's process was not replaced, and goes on: {why}"),
        _ => "the supervisor ended without an answer".to_owned(),
    };
    Err(Failure::io(what, io::Error::other(why)).cure("see its log"))
}

fn no_supervisor(point: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::io(point.display(), io::Error::other("no supervisor answers")).cure("mount it again, without --no-supervisor")
        }
        _ => Failure::io(point.display(), error).cure("only the user who mounted it, and root, can upgrade a mount"),
    }
}

const ANSWER_MAX: Duration = Duration::from_secs(180);

const ANSWER_LEN_MAX: u64 = 4096;
