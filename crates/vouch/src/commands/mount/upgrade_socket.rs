//! The socket on which a mount's supervisor takes requests for an upgrade, found by the device
//! number of the mount.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// Listens for the mount with this device number. Only this user and root can connect.
pub(super) fn listen(device: &str) -> io::Result<(UnixListener, PathBuf)> {
    let path = path(device)?;
    if let Some(directory) = path.parent() {
        // Others may use the directory above.
        directory.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    // Of an earlier mount with this number, which was killed.
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok((listener, path))
}

/// The socket's path; the directory is `/run/vouch/mounts` for root, else below XDG_RUNTIME_DIR.
pub(crate) fn path(device: &str) -> io::Result<PathBuf> {
    if device.is_empty() || !device.bytes().all(|b| b.is_ascii_digit() || b == b':') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the device number of the mount is not known"));
    }
    let base = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        let directory = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        directory.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "XDG_RUNTIME_DIR is not set"))?
    };
    Ok(base.join("vouch/mounts").join(device))
}
