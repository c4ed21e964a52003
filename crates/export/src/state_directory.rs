//! Recovery store, filehandle key, server identity, and a lock against a second server.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE as HEX;
use rustix::fs::FlockOperation;
use zeroize::Zeroizing;

/// Dropping it releases the lock.
pub(super) struct StateDirectory {
    path: PathBuf,
    /// None if the lease of a shared directory takes its place.
    _lock: Option<File>,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("{0}: another server uses this state directory; give each its own with --state")]
    Busy(PathBuf),
    #[error("state directory {0} is accessible by other users (mode {1:04o}) and holds keys; run `chmod 700 {0}`")]
    Accessible(PathBuf, u32),
    #[error("{0} is accessible by other users (mode {1:04o}) and holds a key; run `chmod 600 {0}`")]
    AccessibleKey(PathBuf, u32),
    #[error("{0}: not {1} hexadecimal digits; restore the file from a backup, or remove it and remount all clients")]
    Malformed(PathBuf, usize),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl StateDirectory {
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        create(path)?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|source| StateError::Io { path: lock_path.clone(), source })?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateDirectory { path: path.to_owned(), _lock: Some(lock) }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::Busy(path.to_owned())),
            Err(error) => Err(StateError::Io { path: lock_path, source: error.into() }),
        }
    }

    /// The caller holds the lease.
    pub(super) fn open_shared(path: &Path) -> Result<Self, StateError> {
        create(path)?;
        Ok(StateDirectory { path: path.to_owned(), _lock: None })
    }

    /// Authenticates filehandles. Created at the first start, unless `shared` names the key of
    /// several heads; it must move along with the exports.
    pub(super) fn filehandle_key(&self, shared: Option<&Path>) -> Result<Zeroizing<[u8; 32]>, StateError> {
        match shared {
            Some(path) => shared_key(path).map(Zeroizing::new),
            None => self.secret("filehandle.key").map(Zeroizing::new),
        }
    }

    /// RFC 8881, section 2.5. Created at the first start.
    pub(super) fn server_id(&self) -> Result<[u8; 16], StateError> {
        self.secret("server.id")
    }

    pub(super) fn recovery_path(&self) -> PathBuf {
        self.path.join("recovery.redb")
    }

    /// `N` bytes in hexadecimal. A missing file is created durably from random bytes.
    fn secret<const N: usize>(&self, name: &str) -> Result<[u8; N], StateError> {
        let path = self.path.join(name);
        let failed = |source| StateError::Io { path: path.clone(), source };
        match File::open(&path) {
            Ok(file) => parse(file, &path),
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

fn shared_key<const N: usize>(path: &Path) -> Result<[u8; N], StateError> {
    let failed = |source| StateError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(StateError::AccessibleKey(path.to_owned(), mode));
    }
    parse(file, path)
}

fn parse<const N: usize>(file: File, path: &Path) -> Result<[u8; N], StateError> {
    let mut text = Zeroizing::new(String::new());
    file.take(4096).read_to_string(&mut text).map_err(|source| StateError::Io { path: path.to_owned(), source })?;
    let bytes = HEX.decode(text.trim().as_bytes()).ok().map(Zeroizing::new);
    bytes.and_then(|bytes| bytes.as_slice().try_into().ok()).ok_or_else(|| StateError::Malformed(path.to_owned(), 2 * N))
}

/// Refuses a directory that other users may enter.
pub(super) fn create(path: &Path) -> Result<(), StateError> {
    let failed = |source| StateError::Io { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let mode = fs::metadata(path).map_err(failed)?.mode() & 0o7777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(StateError::Accessible(path.to_owned(), mode)) }
}

/// `head`: of a shared directory. A socket works on its own machine only.
pub fn control_path(state: &Path, head: Option<&str>) -> PathBuf {
    match head {
        None => state.join("control.sock"),
        Some(head) => state.join(format!("control-{head}.sock")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn creates_private_keys_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let state = StateDirectory::open(&path).unwrap();
        let (key, id) = (state.filehandle_key(None).unwrap(), state.server_id().unwrap());
        assert_ne!(key[..16], id);
        drop(state);
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!((state.filehandle_key(None).unwrap(), state.server_id().unwrap()), (key, id));
        assert_eq!(fs::metadata(path.join("filehandle.key")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn refuses_second_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _first = StateDirectory::open(&path).unwrap();
        assert!(matches!(StateDirectory::open(&path), Err(StateError::Busy(_))));
    }

    #[test]
    fn refuses_directory_that_others_may_enter() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(StateDirectory::open(directory.path()), Err(StateError::Accessible(_, 0o755))));
    }

    #[test]
    fn refuses_damaged_key_and_keeps_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let state = StateDirectory::open(&path).unwrap();
        fs::write(path.join("filehandle.key"), "abc").unwrap();
        assert!(matches!(state.filehandle_key(None), Err(StateError::Malformed(..))));
        assert_eq!(fs::read(path.join("filehandle.key")).unwrap(), b"abc");
    }

    #[test]
    fn shared_key_replaces_own_and_must_be_private() {
        let directory = tempfile::tempdir().unwrap();
        let shared = directory.path().join("key");
        fs::write(&shared, format!("{}\n", "ab".repeat(32))).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o640)).unwrap();
        let state = StateDirectory::open(&directory.path().join("s")).unwrap();
        assert!(matches!(state.filehandle_key(Some(&shared)), Err(StateError::AccessibleKey(_, 0o640))));
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(*state.filehandle_key(Some(&shared)).unwrap(), [0xab; 32]);
        assert!(!directory.path().join("s/filehandle.key").exists());
        fs::write(&shared, "ab").unwrap();
        assert!(matches!(state.filehandle_key(Some(&shared)), Err(StateError::Malformed(_, 64))));
    }
}
