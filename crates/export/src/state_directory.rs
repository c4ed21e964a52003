//! The directory that outlives the server: the recovery store, the key of the filehandles, the
//! server's own identity, and the lock that keeps a second server out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE as HEX;
use rustix::fs::FlockOperation;
use zeroize::Zeroizing;

/// An open state directory. The lock ends with it.
pub(super) struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

/// Why a state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another server has it.
    #[error("{0}: another server uses this state directory; give each its own with --state")]
    Busy(PathBuf),
    /// Somebody else may read or change it.
    #[error("{0}: others than its owner may enter the state directory, which holds keys; chmod 700 it")]
    Open(PathBuf),
    /// A file in it is not what it should be.
    #[error("{0}: not {1} hexadecimal digits; restore it from a backup, or remove it and have clients mount anew")]
    Malformed(PathBuf, usize),
    /// The system.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl StateDirectory {
    /// Opens or makes the directory and takes the lock.
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        if fs::metadata(path).map_err(failed)?.mode() & 0o077 != 0 {
            return Err(StateError::Open(path.to_owned()));
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|source| StateError::Io { path: lock_path.clone(), source })?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateDirectory { path: path.to_owned(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Busy(path.to_owned())),
            Err(error) => Err(StateError::Io { path: lock_path, source: error.into() }),
        }
    }

    /// The key of the filehandles' authenticators, made at the first start. Whoever has it can make
    /// handles; whoever moves the exports to another machine takes it along.
    pub(super) fn filehandle_key(&self) -> Result<Zeroizing<[u8; 32]>, StateError> {
        self.secret("filehandle.key").map(Zeroizing::new)
    }

    /// This server's identity towards clients, made at the first start.
    pub(super) fn server_id(&self) -> Result<[u8; 16], StateError> {
        self.secret("server.id")
    }

    /// Where the recovery store is.
    pub(super) fn recovery_path(&self) -> PathBuf {
        self.path.join("recovery.redb")
    }

    /// Reads a file of `N` bytes in hexadecimal digits, or makes it from the system's randomness,
    /// durably.
    fn secret<const N: usize>(&self, name: &str) -> Result<[u8; N], StateError> {
        let path = self.path.join(name);
        let failed = |source| StateError::Io { path: path.clone(), source };
        match File::open(&path) {
            Ok(file) => {
                let mut text = Zeroizing::new(String::new());
                file.take(4096).read_to_string(&mut text).map_err(failed)?;
                let bytes = HEX.decode(text.trim().as_bytes()).ok().map(Zeroizing::new);
                bytes.and_then(|bytes| bytes.as_slice().try_into().ok()).ok_or(StateError::Malformed(path, 2 * N))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut bytes = [0; N];
                getrandom::fill(&mut bytes).map_err(|error| failed(io::Error::other(error.to_string())))?;
                let new = self.path.join(format!("{name}.new"));
                let write = || -> io::Result<()> {
                    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
                    let text = Zeroizing::new(HEX.encode(&bytes));
                    file.write_all(text.as_bytes())?;
                    file.write_all(b"\n")?;
                    file.sync_all()?;
                    fs::rename(&new, &path)?;
                    File::open(&self.path)?.sync_all()
                };
                write().map_err(failed)?;
                Ok(bytes)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Where the control socket of a state directory is.
pub fn control_path(state: &Path) -> PathBuf {
    state.join("control.sock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn keys_are_made_once_and_are_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let state = StateDirectory::open(&path).unwrap();
        let (key, id) = (state.filehandle_key().unwrap(), state.server_id().unwrap());
        assert_ne!(key[..16], id);
        drop(state);
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!((state.filehandle_key().unwrap(), state.server_id().unwrap()), (key, id));
        assert_eq!(fs::metadata(path.join("filehandle.key")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn second_server_is_told_who_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _first = StateDirectory::open(&path).unwrap();
        assert!(matches!(StateDirectory::open(&path), Err(StateError::Busy(_))));
    }

    #[test]
    fn directory_open_to_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(StateDirectory::open(directory.path()), Err(StateError::Open(_))));
    }

    #[test]
    fn damaged_key_is_refused_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let state = StateDirectory::open(&path).unwrap();
        fs::write(path.join("filehandle.key"), "abc").unwrap();
        assert!(matches!(state.filehandle_key(), Err(StateError::Malformed(..))));
        assert_eq!(fs::read(path.join("filehandle.key")).unwrap(), b"abc");
    }
}
