//! Recovery store, filehandle key, server identity, and a lock against a second server.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER_PERMISSIVE as HEX;
use rustix::fs::FlockOperation;
use vouch_trust::{Access, Exposure};
use zeroize::Zeroizing;

use crate::lease;

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
    #[error(
        "{0}: a server without --shared-state uses this state directory; stop it, or start it with --shared-state too"
    )]
    OfOneServer(PathBuf),
    #[error(
        "{0}: this state directory belongs to servers with --shared-state, and {1} has its lease; use --shared-state too, \
         or stop them all and remove {0}/lease"
    )]
    OfHeads(PathBuf, String),
    #[error(
        "{0}: there is no such directory; is the shared storage mounted? If it is, run `install -d -m 700 {0}`"
    )]
    NotMounted(PathBuf),
    #[error("{0}")]
    Exposed(#[from] Exposure),
    #[error(
        "{0}: not {1} hexadecimal digits; restore the file from a backup, or remove it and remount all clients"
    )]
    Malformed(PathBuf, usize),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl StateDirectory {
    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        create(path)?;
        let lock = lock(path, FlockOperation::NonBlockingLockExclusive);
        // Not every shared storage has locks that all heads see, so their lease counts too.
        match lease::holder(path)
            .map_err(|source| StateError::Io { path: path.join("lease"), source })?
        {
            Some(head) => Err(StateError::OfHeads(path.to_owned(), head)),
            None => Ok(StateDirectory {
                path: path.to_owned(),
                _lock: Some(lock?.ok_or_else(|| StateError::Busy(path.to_owned()))?),
            }),
        }
    }

    /// The caller holds the lease.
    pub(super) fn of_heads(path: &Path) -> Self {
        StateDirectory { path: path.to_owned(), _lock: None }
    }

    /// Authenticates filehandles. Created at the first start, unless `shared` names the key of
    /// several heads; it must move along with the exports.
    pub(super) fn filehandle_key(
        &self,
        shared: Option<&Path>,
    ) -> Result<Zeroizing<[u8; 32]>, StateError> {
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
                getrandom::fill(&mut bytes)
                    .map_err(|error| failed(io::Error::other(error.to_string())))?;
                let new = self.path.join(format!("{name}.new"));
                let write = || -> io::Result<()> {
                    let mut file = OpenOptions::new()
                        .create(true)
                        .truncate(true)
                        .write(true)
                        .mode(0o600)
                        .open(&new)?;
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
    vouch_trust::check(path, &file.metadata().map_err(failed)?, Access::Nothing)?;
    parse(file, path)
}

fn parse<const N: usize>(file: File, path: &Path) -> Result<[u8; N], StateError> {
    let mut text = Zeroizing::new(String::new());
    file.take(4096)
        .read_to_string(&mut text)
        .map_err(|source| StateError::Io { path: path.to_owned(), source })?;
    let bytes = HEX.decode(text.trim().as_bytes()).ok().map(Zeroizing::new);
    bytes
        .and_then(|bytes| bytes.as_slice().try_into().ok())
        .ok_or_else(|| StateError::Malformed(path.to_owned(), 2 * N))
}

/// Heads hold the lock together. None if the storage has no locks: then no server without a lease
/// starts there either. Creates no directory, because it would lie below a mount point that is empty.
pub(super) fn lock_for_heads(path: &Path) -> Result<Option<File>, StateError> {
    match check(path) {
        Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(StateError::NotMounted(path.to_owned()));
        }
        checked => checked?,
    }
    match lock(path, FlockOperation::NonBlockingLockShared) {
        Ok(None) => Err(StateError::OfOneServer(path.to_owned())),
        Err(StateError::Io { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
            Ok(None)
        }
        lock => lock,
    }
}

/// None if another process holds a lock that conflicts.
fn lock(path: &Path, operation: FlockOperation) -> Result<Option<File>, StateError> {
    let path = path.join("lock");
    let failed = |source| StateError::Io { path: path.clone(), source };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match rustix::fs::flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}

fn create(path: &Path) -> Result<(), StateError> {
    let failed = |source| StateError::Io { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    check(path)
}

/// Refuses a directory that other users may enter or replace.
fn check(path: &Path) -> Result<(), StateError> {
    let metadata =
        fs::metadata(path).map_err(|source| StateError::Io { path: path.to_owned(), source })?;
    Ok(vouch_trust::check(path, &metadata, Access::Nothing)?)
}

/// `head`: of a shared directory. A socket works on its own machine only.
pub fn control_path(state: &Path, head: Option<&str>) -> PathBuf {
    match head {
        None => state.join("control.sock"),
        Some(head) => state.join(format!("control-{head}.sock")),
    }
}

/// Exports that administrators added to the running server, to be kept.
pub(crate) fn kept_exports_path(state: &Path) -> PathBuf {
    state.join("exports")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

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
    fn directory_belongs_to_one_server_or_to_heads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let server = StateDirectory::open(&path).unwrap();
        assert!(matches!(lock_for_heads(&path), Err(StateError::OfOneServer(_))));
        drop(server);
        let heads = [lock_for_heads(&path).unwrap(), lock_for_heads(&path).unwrap()];
        assert!(matches!(StateDirectory::open(&path), Err(StateError::Busy(_))));
        drop(heads);
        // Without a lock that reaches other machines.
        let record = |tenure| {
            format!(
                "vouch export lease 1\nepoch 3\nhead a\nprocess {:016x}\nrenewal 0\ntenure {tenure}\nbefore -\n",
                7
            )
        };
        fs::create_dir(path.join("lease")).unwrap();
        for tenure in ["claimed", "active"] {
            fs::write(path.join("lease/epoch-3"), record(tenure)).unwrap();
            assert!(
                matches!(StateDirectory::open(&path), Err(StateError::OfHeads(_, head)) if head == "a"),
                "{tenure}"
            );
        }
        fs::write(path.join("lease/epoch-3"), "damaged").unwrap();
        assert!(matches!(StateDirectory::open(&path), Err(StateError::Io { .. })));
        fs::write(path.join("lease/epoch-3"), record("released")).unwrap();
        StateDirectory::open(&path).unwrap();
    }

    #[test]
    fn heads_create_no_state_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        assert!(matches!(lock_for_heads(&path), Err(StateError::NotMounted(_))));
        assert!(!path.exists());
    }

    #[test]
    fn refuses_directory_that_others_may_enter() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            matches!(StateDirectory::open(directory.path()), Err(StateError::Exposed(found)) if found.mode == Some(0o755))
        );
    }

    #[test]
    #[ignore = "needs root"]
    fn refuses_directory_of_another_user_or_below_one() {
        let directory = tempfile::tempdir().unwrap();
        let (above, path) = (directory.path().join("above"), directory.path().join("above/s"));
        drop(StateDirectory::open(&path).unwrap());
        for owned in [&path, &above] {
            std::os::unix::fs::chown(owned, Some(4242), None).unwrap();
            assert!(
                matches!(StateDirectory::open(&path), Err(StateError::Exposed(found)) if found.mode.is_none()),
                "{owned:?}"
            );
            std::os::unix::fs::chown(owned, Some(0), None).unwrap();
        }
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
        assert!(
            matches!(state.filehandle_key(Some(&shared)), Err(StateError::Exposed(found)) if found.mode == Some(0o640))
        );
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(*state.filehandle_key(Some(&shared)).unwrap(), [0xab; 32]);
        assert!(!directory.path().join("s/filehandle.key").exists());
        fs::write(&shared, "ab").unwrap();
        assert!(matches!(state.filehandle_key(Some(&shared)), Err(StateError::Malformed(_, 64))));
    }
}
