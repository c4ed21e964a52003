//! Unix sockets for the status of a daemon: names, permissions and removal.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::status::DaemonKind;
use crate::{private_socket, runtime_directory};

/// Only its user and root can connect. Its file is removed on drop.
#[derive(Debug)]
pub struct StatusSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

impl StatusSocket {
    /// `KIND-PID.sock` in the runtime directory. `None` without a usable directory: a daemon also
    /// runs without a status socket.
    pub fn open(kind: DaemonKind, directory: Option<&Path>) -> Option<Self> {
        let Some(directory) = directory else {
            tracing::info!("no status socket: XDG_RUNTIME_DIR is not set");
            return None;
        };
        let opened = runtime_directory::create(directory).and_then(|()| {
            remove_dead(directory);
            Self::bind(&directory.join(format!("{}-{}{SUFFIX}", kind.name(), std::process::id())))
        });
        opened
            .inspect_err(|error| {
                tracing::info!("no status socket in {}: {error}", directory.display())
            })
            .ok()
    }

    /// `path` may hold the socket of an ended process.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = private_socket::bind(path, 0o600)?;
        listener.set_nonblocking(true)?;
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { listener, path: path.to_owned(), file: (metadata.dev(), metadata.ino()) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file) {
            // A sandbox may forbid it; the next daemon removes the file then.
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(crate) fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths =
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(SUFFIX));
    paths.take(SOCKETS_MAX).collect()
}

fn remove_dead(directory: &Path) {
    for path in sockets_in(directory) {
        // A zombie has no executable either.
        let has_ended = |pid: u32| {
            fs::read_link(format!("/proc/{pid}/exe"))
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let is_dead = pid_of(&path).is_some_and(has_ended)
            && UnixStream::connect(&path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if is_dead {
            let _ = fs::remove_file(&path);
        }
    }
}

fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_stem()?.to_str()?.rsplit_once('-')?.1.parse().ok()
}

const SUFFIX: &str = ".sock";

const SOCKETS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_private_and_ends_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mount-1.sock");
        let socket = StatusSocket::bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let successor = StatusSocket::bind(&path).unwrap();
        drop(socket);
        assert!(UnixStream::connect(&path).is_ok());
        drop(successor);
        assert!(!path.exists());
    }

    #[test]
    fn only_sockets_of_ended_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let dead = directory.path().join(format!("serve-{}.sock", u32::MAX));
        let alive = directory.path().join(format!("serve-{}.sock", std::process::id()));
        for path in [&dead, &alive] {
            drop(UnixListener::bind(path).unwrap());
        }
        remove_dead(directory.path());
        assert!(!dead.exists() && alive.exists());
    }
}
