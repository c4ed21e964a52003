//! Credential caches in files: written at once, owned by the user, removed only if they are ours.
//!
//! The directory may be /tmp, where users create files under any name. So the agent opens only files
//! that it has just created, or whose device and inode number it knows.

use std::fs::{File, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::{Error, io_at};

/// Where users' caches are: a path with the user's number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachePattern(String);

/// A cache in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WrittenCache {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// A complete file that is not in its place yet. Removed if it is dropped.
pub(super) struct StagedCache {
    staged: PathBuf,
    written: WrittenCache,
    is_installed: bool,
}

const UID: &str = "%{uid}";

impl CachePattern {
    /// # Errors
    /// If it is no absolute path in which `%{uid}` stands once.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let path = text.strip_prefix("FILE:").unwrap_or(text);
        let is_good = path.starts_with('/') && path.matches(UID).count() == 1 && Path::new(path).file_name().is_some();
        match is_good && !text.starts_with("KEYRING:") {
            true => Ok(Self(path.to_owned())),
            false => Err(Error::Configuration(format!("--cache {text}: write FILE: and an absolute path with %{{uid}} in it"))),
        }
    }

    fn path(&self, uid: u32) -> PathBuf {
        self.0.replace(UID, &uid.to_string()).into()
    }

    fn staged_path(&self, uid: u32) -> PathBuf {
        let path = self.path(uid);
        let name = path.file_name().expect("checked when parsed").to_string_lossy();
        path.with_file_name(format!(".{name}.vouch"))
    }

    /// Writes a file beside its place.
    pub(super) fn stage(&self, uid: u32, gid: u32, bytes: &[u8]) -> Result<StagedCache, Error> {
        self.remove_staged(uid)?;
        let (staged, path) = (self.staged_path(uid), self.path(uid));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&staged, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from).map_err(io_at(&staged))?;
        let mut file = File::from(file);
        let write = || {
            let metadata = file.metadata()?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(bytes)?;
            // Last: until then only root can read it.
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
            Ok((metadata.dev(), metadata.ino()))
        };
        match { write }() {
            Ok((device, inode)) => Ok(StagedCache { staged, written: WrittenCache { path, device, inode }, is_installed: false }),
            Err(error) => {
                let _ = std::fs::remove_file(&staged);
                Err(io_at(&staged)(error))
            }
        }
    }

    /// After a start: puts a cache that a killed agent has recorded into its place, and removes any
    /// other file that it has staged.
    pub(super) fn finish(&self, uid: u32, file: Option<&WrittenCache>, previous: Option<&WrittenCache>) -> Result<(), Error> {
        let staged = self.staged_path(uid);
        if let Some(written) = file.cloned()
            && (WrittenCache { path: staged.clone(), ..written }).open().map_err(io_at(&staged))?.is_some()
        {
            return StagedCache { staged, written, is_installed: false }.install(previous);
        }
        self.remove_staged(uid)
    }

    /// Wipes and removes what a killed agent has staged. A user can place a file there, which is no
    /// loss.
    fn remove_staged(&self, uid: u32) -> Result<(), Error> {
        let staged = self.staged_path(uid);
        if let Some(file) = open_regular(&staged).map_err(io_at(&staged))?
            && file.metadata().is_ok_and(|metadata| metadata.nlink() == 1)
        {
            wipe(file).map_err(io_at(&staged))?;
        }
        match std::fs::remove_file(&staged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(&staged)(error)),
            _ => Ok(()),
        }
    }
}

impl StagedCache {
    pub(super) fn written(&self) -> &WrittenCache {
        &self.written
    }

    /// Replaces what is in its place, and wipes the previous cache.
    pub(super) fn install(mut self, previous: Option<&WrittenCache>) -> Result<(), Error> {
        let previous = previous.and_then(|previous| previous.open().ok().flatten());
        std::fs::rename(&self.staged, &self.written.path).map_err(io_at(&self.written.path))?;
        self.is_installed = true;
        if let Some(previous) = previous {
            wipe(previous).map_err(io_at(&self.written.path))?;
        }
        Ok(())
    }
}

impl Drop for StagedCache {
    fn drop(&mut self) {
        if !self.is_installed {
            let _ = std::fs::remove_file(&self.staged);
        }
    }
}

impl WrittenCache {
    /// Overwrites the tickets and removes the file. A file that the user has put there instead stays.
    pub(super) fn remove(&self) -> Result<(), Error> {
        let Some(file) = self.open().map_err(io_at(&self.path))? else {
            tracing::info!(path = %self.path.display(), "the cache was replaced or removed by its user");
            return Ok(());
        };
        wipe(file).map_err(io_at(&self.path))?;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Whether nothing is in its place.
    pub(super) fn is_missing(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// None if another file is there, or none.
    fn open(&self) -> io::Result<Option<File>> {
        let Some(file) = open_regular(&self.path)? else { return Ok(None) };
        let metadata = file.metadata()?;
        Ok(((metadata.dev(), metadata.ino()) == (self.device, self.inode)).then_some(file))
    }
}

/// None without a regular file of this name.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::LOOP | rustix::io::Errno::ISDIR | rustix::io::Errno::NXIO) => {
            return Ok(None);
        }
        other => File::from(other?),
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Zeros in place of the tickets, on the disk too.
fn wipe(mut file: File) -> io::Result<()> {
    // Tickets have at most this length; a user may have appended to the file.
    const WIPED_LEN_MAX: u64 = 4 << 20;
    let len = file.metadata()?.len().min(WIPED_LEN_MAX);
    file.rewind()?;
    file.write_all(&vec![0; len as usize])?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_ids() -> (u32, u32) {
        (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw())
    }

    fn pattern(directory: &Path) -> CachePattern {
        CachePattern::parse(&format!("FILE:{}/krb5cc_%{{uid}}", directory.display())).unwrap()
    }

    #[test]
    fn cache_is_private_and_wiped_when_it_is_replaced_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (pattern, (uid, gid)) = (pattern(directory.path()), own_ids());
        let first = pattern.stage(uid, gid, b"first tickets").unwrap();
        let old = first.written().clone();
        first.install(None).unwrap();
        let path = directory.path().join(format!("krb5cc_{uid}"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        std::fs::hard_link(&path, directory.path().join("link")).unwrap();
        let second = pattern.stage(uid, gid, b"second tickets").unwrap();
        let new = second.written().clone();
        second.install(Some(&old)).unwrap();
        assert_eq!(std::fs::read(directory.path().join("link")).unwrap(), [0; 13]);
        assert_eq!(std::fs::read(&path).unwrap(), b"second tickets");
        old.remove().unwrap();
        assert!(path.exists(), "it is another file now");
        new.remove().unwrap();
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn start_after_a_kill_finishes_or_wipes_the_staged_cache() {
        let directory = tempfile::tempdir().unwrap();
        let (pattern, (uid, gid)) = (pattern(directory.path()), own_ids());
        let (path, link) = (directory.path().join(format!("krb5cc_{uid}")), directory.path().join("link"));
        let killed_with = |bytes: &[u8]| {
            let staged = pattern.stage(uid, gid, bytes).unwrap();
            let written = staged.written().clone();
            std::mem::forget(staged);
            written
        };
        let first = killed_with(b"first");
        pattern.finish(uid, Some(&first), None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        // The state names the second cache, and the first is still in its place.
        let second = killed_with(b"second");
        let mut old = File::open(&path).unwrap();
        pattern.finish(uid, Some(&second), Some(&first)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(io::read_to_string(&mut old).unwrap(), "\0\0\0\0\0");
        // The state does not name the third.
        killed_with(b"third");
        let mut staged = File::open(pattern.staged_path(uid)).unwrap();
        pattern.finish(uid, Some(&second), None).unwrap();
        assert_eq!(io::read_to_string(&mut staged).unwrap(), "\0\0\0\0\0");
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        // A user's hard link to another file is removed, and the file stays.
        std::fs::write(&link, "precious").unwrap();
        std::fs::hard_link(&link, pattern.staged_path(uid)).unwrap();
        pattern.finish(uid, Some(&second), None).unwrap();
        assert_eq!(std::fs::read(&link).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!(!second.is_missing());
        second.remove().unwrap();
        assert!(second.is_missing());
    }

    #[test]
    fn files_and_links_of_the_user_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (pattern, (uid, gid)) = (pattern(directory.path()), own_ids());
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let path = directory.path().join(format!("krb5cc_{uid}"));
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(format!(".krb5cc_{uid}.vouch"))).unwrap();
        let staged = pattern.stage(uid, gid, b"tickets").unwrap();
        let written = staged.written().clone();
        staged.install(None).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        // The user replaces the cache by a link and by a file. While the cache is open, no new file
        // gets its inode number.
        let _held = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        written.remove().unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "own tickets").unwrap();
        written.remove().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"own tickets");
    }

    #[test]
    fn pattern_names_the_user_once() {
        for bad in ["FILE:/tmp/krb5cc", "FILE:krb5cc_%{uid}", "KEYRING:persistent:%{uid}", "FILE:/%{uid}/%{uid}", "KCM:%{uid}"] {
            assert!(CachePattern::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(CachePattern::parse("FILE:/run/x/cc_%{uid}").unwrap().path(7), Path::new("/run/x/cc_7"));
    }
}
