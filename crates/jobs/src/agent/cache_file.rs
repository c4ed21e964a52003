//! Credential caches in files: written at once, owned by the user, removed only if they are ours.
//!
//! The directory may be /tmp, where users create files under any name. So the agent opens only files
//! that it has just created, or whose device and inode number it knows. It enters no file system that
//! a user has mounted there, and what a user does to one cache is an error of that cache only.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::jobs::{Cache, CacheOwner};
use crate::{Error, io_at};

/// Where caches are.
#[derive(Clone, Debug)]
pub(super) struct CachePlaces {
    /// Of users: a path with the user's number in it.
    pattern: String,
    /// Of pods: a directory that only root enters.
    pods: PathBuf,
}

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

impl CachePlaces {
    /// `state` is the agent's directory.
    ///
    /// # Errors
    /// If the text is no absolute path in which `%{uid}` stands once, or if a user could put a link in
    /// place of a directory on the path: root would write to where the link leads.
    pub(super) fn open(text: &str, state: &Path) -> Result<Self, Error> {
        let pattern = Self::parse(text)?;
        let pods = state.join("pods");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&pods)
            .map_err(io_at(&pods))?;
        Ok(Self { pattern, pods })
    }

    fn parse(text: &str) -> Result<String, Error> {
        let path = text.strip_prefix("FILE:").unwrap_or(text);
        let is_good = path.starts_with('/')
            && path.matches(UID).count() == 1
            && Path::new(path).file_name().is_some();
        let refuse = |why: &str| Err(Error::Configuration(format!("--cache {text}: {why}")));
        if !is_good || text.starts_with("KEYRING:") {
            return refuse("write FILE: and an absolute path with %{uid} in it");
        }
        let (before, after) = path.split_once(UID).expect("stands there once");
        let above = &before[..=before.rfind('/').expect("absolute")];
        let is_open = || std::fs::metadata(above).is_ok_and(|found| found.mode() & 0o022 != 0);
        match after.matches('/').count() {
            0 => Ok(path.to_owned()),
            1 if !is_open() => Ok(path.to_owned()),
            _ => refuse(
                "users could put links in place of its directories; write %{uid} into the name of \
                 the file, as FILE:/tmp/krb5cc_%{uid}",
            ),
        }
    }

    pub(super) fn path(&self, owner: &CacheOwner) -> PathBuf {
        match owner {
            CacheOwner::User(uid) => self.pattern.replace(UID, &uid.to_string()).into(),
            CacheOwner::Job(job) => self.pods.join(job.as_str()),
        }
    }

    /// A name beside the cache that nobody else can know in advance.
    pub(super) fn new_staged_path(&self, owner: &CacheOwner) -> Result<PathBuf, Error> {
        let mut number = [0; 16];
        getrandom::fill(&mut number)
            .map_err(|error| Error::Configuration(format!("randomness: {error}")))?;
        Ok(self.staged_path(owner, &data_encoding::HEXLOWER.encode(&number)))
    }

    fn staged_path(&self, owner: &CacheOwner, suffix: &str) -> PathBuf {
        let path = self.path(owner);
        let name = path.file_name().expect("checked when parsed").to_string_lossy();
        path.with_file_name(format!(".{name}.{suffix}"))
    }

    /// Writes a file at `staged`, which is beside its place. A user's belongs to the user and `gid`.
    pub(super) fn stage(
        &self,
        owner: &CacheOwner,
        gid: u32,
        staged: PathBuf,
        bytes: &[u8],
    ) -> Result<StagedCache, Error> {
        let path = self.path(owner);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&staged, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .map_err(io_at(&staged))?;
        let mut file = File::from(file);
        let write = || {
            let metadata = file.metadata()?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(bytes)?;
            // Last: until then only root can read it.
            if let CacheOwner::User(uid) = owner {
                std::os::unix::fs::fchown(&file, Some(*uid), Some(gid))?;
            }
            Ok((metadata.dev(), metadata.ino()))
        };
        match { write }() {
            Ok((device, inode)) => Ok(StagedCache {
                staged,
                written: WrittenCache { path, device, inode },
                is_installed: false,
            }),
            Err(error) => {
                let _ = std::fs::remove_file(&staged);
                Err(io_at(&staged)(error))
            }
        }
    }

    /// After a start: puts a cache that a killed agent has recorded into its place, and removes any
    /// other file that it has staged.
    pub(super) fn finish(&self, owner: &CacheOwner, cache: &Cache) -> Result<(), Error> {
        // Earlier releases staged under a name that is the same each time.
        let names = [cache.staged.clone(), Some(self.staged_path(owner, "vouch"))];
        for staged in names.into_iter().flatten() {
            if let Some(written) = cache.file.clone()
                && (WrittenCache { path: staged.clone(), ..written })
                    .is_in_place()
                    .map_err(io_at(&staged))?
            {
                StagedCache { staged, written, is_installed: false }
                    .install(cache.previous.as_ref())?;
            } else {
                remove_staged(&staged).map_err(io_at(&staged))?;
            }
        }
        Ok(())
    }
}

/// Wipes and removes what a killed agent has staged. A file that a user has put there instead stays, unless
/// it is a file.
fn remove_staged(staged: &Path) -> io::Result<()> {
    if identify(staged)?.is_none_or(|found| found.is_dir()) {
        return Ok(());
    }
    // Not a hard link to another file.
    let is_alone = |file: &File| file.metadata().is_ok_and(|metadata| metadata.nlink() == 1);
    wipe_if_possible(staged, open_regular(staged).map(|file| file.filter(is_alone)));
    std::fs::remove_file(staged)
}

impl StagedCache {
    pub(super) fn written(&self) -> &WrittenCache {
        &self.written
    }

    /// Replaces what is in its place, and wipes the previous cache.
    pub(super) fn install(mut self, previous: Option<&WrittenCache>) -> Result<(), Error> {
        let previous = previous.map(|previous| (&previous.path, previous.open()));
        let (staged, path) = (&self.staged, &self.written.path);
        match std::fs::rename(staged, path) {
            // Any user can make a directory of this name. It becomes rubbish of that user's.
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                rustix::fs::renameat_with(CWD, staged, CWD, path, RenameFlags::EXCHANGE)
                    .map_err(io::Error::from)
                    .map_err(io_at(path))?;
                tracing::warn!(path = %path.display(), "a user had made a directory in place of the cache");
                let _ = std::fs::remove_dir(staged);
            }
            renamed => renamed.map_err(io_at(path))?,
        }
        self.is_installed = true;
        if let Some((path, previous)) = previous {
            wipe_if_possible(path, previous);
        }
        Ok(())
    }
}

impl Drop for StagedCache {
    fn drop(&mut self) {
        if !self.is_installed {
            let _ = remove_staged(&self.staged);
        }
    }
}

impl WrittenCache {
    /// Overwrites the tickets and removes the file. A file that the user has put there instead stays.
    pub(super) fn remove(&self) -> Result<(), Error> {
        if !self.is_in_place().map_err(io_at(&self.path))? {
            tracing::info!(path = %self.path.display(), "the cache was replaced or removed by its user");
            return Ok(());
        }
        wipe_if_possible(&self.path, self.open());
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_at(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Whether nothing is in its place.
    pub(super) fn is_missing(&self) -> bool {
        open_here(&self.path, OFlags::PATH).is_err_and(|error| error == Errno::NOENT)
    }

    fn is_in_place(&self) -> io::Result<bool> {
        Ok(identify(&self.path)?.is_some_and(|found| self.is(&found)))
    }

    fn is(&self, found: &Metadata) -> bool {
        found.is_file() && (found.dev(), found.ino()) == (self.device, self.inode)
    }

    /// None if another file is there, or none.
    fn open(&self) -> io::Result<Option<File>> {
        let Some(file) = open_regular(&self.path)? else { return Ok(None) };
        Ok(self.is(&file.metadata()?).then_some(file))
    }
}

/// What is there, without opening it. None if there is nothing, or a user's mount.
fn identify(path: &Path) -> io::Result<Option<Metadata>> {
    match open_here(path, OFlags::PATH) {
        Err(Errno::NOENT | Errno::XDEV) => Ok(None),
        other => Ok(Some(File::from(other?).metadata()?)),
    }
}

/// None without a regular file of this name.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let file = match open_here(path, OFlags::WRONLY | OFlags::NONBLOCK) {
        Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::XDEV) => {
            return Ok(None);
        }
        other => File::from(other?),
    };
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Follows no link of this name, and enters no mount on it: a user's file system may never answer.
fn open_here(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = rustix::fs::open(
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(
        parent,
        name,
        flags,
        Mode::empty(),
        ResolveFlags::NO_XDEV | ResolveFlags::BENEATH,
    )
}

/// A user who executes the file, or holds a lease on it, prevents that it is opened. It is removed
/// all the same.
fn wipe_if_possible(path: &Path, file: io::Result<Option<File>>) {
    if let Err(error) = file.and_then(|file| file.map_or(Ok(()), wipe)) {
        tracing::warn!(path = %path.display(), "the tickets are removed, but cannot be overwritten: {error}");
    }
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

    fn own_uid() -> u32 {
        nix::unistd::getuid().as_raw()
    }

    fn own() -> CacheOwner {
        CacheOwner::User(own_uid())
    }

    fn places(directory: &Path) -> CachePlaces {
        let pattern = format!("{}/krb5cc_%{{uid}}", directory.display());
        CachePlaces { pattern, pods: directory.join("pods") }
    }

    /// Staged under a new name.
    fn stage(places: &CachePlaces, bytes: &[u8]) -> StagedCache {
        let gid = nix::unistd::getgid().as_raw();
        places.stage(&own(), gid, places.new_staged_path(&own()).unwrap(), bytes).unwrap()
    }

    fn recorded(
        staged: &Path,
        file: Option<&WrittenCache>,
        previous: Option<&WrittenCache>,
    ) -> Cache {
        Cache {
            file: file.cloned(),
            end_s: 0,
            renew_s: 0,
            previous: previous.cloned(),
            staged: Some(staged.to_owned()),
        }
    }

    #[test]
    fn cache_is_private_and_wiped_when_it_is_replaced_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (places, uid) = (places(directory.path()), own_uid());
        let first = stage(&places, b"first tickets");
        let old = first.written().clone();
        first.install(None).unwrap();
        let path = directory.path().join(format!("krb5cc_{uid}"));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        std::fs::hard_link(&path, directory.path().join("link")).unwrap();
        let second = stage(&places, b"second tickets");
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
        let (places, uid) = (places(directory.path()), own_uid());
        let (path, link) =
            (directory.path().join(format!("krb5cc_{uid}")), directory.path().join("link"));
        let killed_with = |bytes: &[u8]| {
            let staged = stage(&places, bytes);
            let killed = (staged.staged.clone(), staged.written().clone());
            std::mem::forget(staged);
            killed
        };
        let (staged, first) = killed_with(b"first");
        places.finish(&own(), &recorded(&staged, Some(&first), None)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        // The state names the second cache, and the first is still in its place.
        let (staged, second) = killed_with(b"second");
        let mut old = File::open(&path).unwrap();
        places.finish(&own(), &recorded(&staged, Some(&second), Some(&first))).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(io::read_to_string(&mut old).unwrap(), "\0\0\0\0\0");
        // The state names the third cache's staging name only.
        let (staged, _) = killed_with(b"third");
        let mut third = File::open(&staged).unwrap();
        places.finish(&own(), &recorded(&staged, Some(&second), None)).unwrap();
        assert_eq!(io::read_to_string(&mut third).unwrap(), "\0\0\0\0\0");
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        // An earlier release's name: a user's hard link to another file is removed, and the file stays.
        std::fs::write(&link, "precious").unwrap();
        std::fs::hard_link(&link, places.staged_path(&own(), "vouch")).unwrap();
        places.finish(&own(), &recorded(&staged, Some(&second), None)).unwrap();
        assert_eq!(std::fs::read(&link).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        // A user's directory of that name stays, and stops nothing.
        std::fs::create_dir_all(places.staged_path(&own(), "vouch").join("full")).unwrap();
        places.finish(&own(), &recorded(&staged, Some(&second), None)).unwrap();
        assert!(!second.is_missing());
        second.remove().unwrap();
        assert!(second.is_missing());
    }

    #[test]
    fn files_and_links_of_the_user_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (places, uid) = (places(directory.path()), own_uid());
        let victim = directory.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let path = directory.path().join(format!("krb5cc_{uid}"));
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let staged = stage(&places, b"tickets");
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
    fn users_tricks_do_not_keep_tickets_in_place_or_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let (places, uid) = (places(directory.path()), own_uid());
        let path = directory.path().join(format!("krb5cc_{uid}"));
        // A directory in place of the cache, which cannot be removed.
        std::fs::create_dir_all(path.join("full")).unwrap();
        let staged = stage(&places, b"tickets");
        let written = staged.written().clone();
        staged.install(None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"tickets");
        // A program that runs cannot be written to.
        std::fs::copy("/bin/sleep", &path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let mut program = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let removed = written.remove();
        program.kill().unwrap();
        program.wait().unwrap();
        removed.unwrap();
        assert!(written.is_missing());
    }

    #[test]
    fn pattern_names_the_user_once() {
        for bad in [
            "FILE:/tmp/krb5cc",
            "FILE:krb5cc_%{uid}",
            "KEYRING:persistent:%{uid}",
            "FILE:/%{uid}/%{uid}",
            "KCM:%{uid}",
            "FILE:/tmp/%{uid}/cc",
            "FILE:/usr/%{uid}/tmp/cc",
        ] {
            assert!(CachePlaces::parse(bad).is_err(), "{bad}");
        }
        let state = tempfile::tempdir().unwrap();
        let places = CachePlaces::open("FILE:/run/x/cc_%{uid}", state.path()).unwrap();
        assert_eq!(places.path(&CacheOwner::User(7)), Path::new("/run/x/cc_7"));
        assert!(CachePlaces::parse("FILE:/usr/%{uid}/cc").is_ok());
    }
}
