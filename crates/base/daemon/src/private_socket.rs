//! Unix sockets that have their mode from the first moment.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Listens with the permissions of `mode`, less the umask. Nobody else can connect before they are in
/// force: Linux gives the new file the mode of the socket, and no umask of the process changes for it.
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// The standard library's.
const BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn socket_is_private_as_soon_as_it_is_there() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o600, 0o644] {
            let path = directory.path().join(format!("{mode:o}"));
            let _listener = super::bind(&path, mode).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, mode);
            assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        }
    }
}
