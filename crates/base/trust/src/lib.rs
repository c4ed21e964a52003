//! Who else can read or change a file: the one check for secrets, state directories and
//! configuration. It never changes anything.
//!
//! For root it covers the owner, and the directories above: whoever may rename one of them chooses
//! the file. Other users choose whom they trust, so only the mode counts for them.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What others may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// The group may read.
    GroupRead,
    /// Nothing.
    Nothing,
}

/// Others may do more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The file, or a directory above it.
    pub place: PathBuf,
    /// Follows the place in a sentence.
    pub what: String,
    /// What to do.
    pub cure: String,
    /// The file's own mode, if that is at fault. None: its owner, or a directory above it.
    pub mode: Option<u32>,
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.place.display(), self.what, self.cure)
    }
}

impl std::error::Error for Exposure {}

/// Checks the file or directory of this `metadata`.
///
/// # Errors
/// The first exposure found.
pub fn check(path: &Path, metadata: &Metadata, access: Access) -> Result<(), Exposure> {
    check_mode(path, metadata, access)?;
    check_owners(path, metadata)
}

/// The first exposure of a path. One that is missing has none.
///
/// # Errors
/// The file system's error.
pub fn find_exposure(path: &Path, access: Access) -> io::Result<Option<Exposure>> {
    match path.metadata() {
        Ok(metadata) => Ok(check(path, &metadata, access).err()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// For secrets that often belong to another user or arrive with a wide mode, such as the keys of a
/// certificate manager and the secrets of containers: a warning in the log.
pub fn warn_if_exposed(path: &Path) {
    if let Ok(Some(exposure)) = find_exposure(path, Access::GroupRead) {
        tracing::warn!("{exposure}");
    }
}

/// For files without secrets that decide who gets access: a warning in the log.
pub fn warn_if_changeable(path: &Path) {
    if let Ok(Some(exposure)) = find_exposure(path, Access::Read) {
        tracing::warn!("{exposure}");
    }
}

/// Owner and directories above, for root.
///
/// # Errors
/// The first exposure found.
pub fn check_owners(path: &Path, metadata: &Metadata) -> Result<(), Exposure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    check_owner(path, metadata)?;
    // The real path: a link is as safe as the directories that its target is in.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.ancestors().skip(1).try_for_each(check_directory)
}

/// For root: that only root may rename or replace entries of the directory. Those above it are not
/// checked.
///
/// # Errors
/// If the directory is another user's, or others may write to it.
pub fn check_directory(path: &Path) -> Result<(), Exposure> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    check_owner(path, &metadata)?;
    // In a sticky directory, only root can replace root's files.
    if metadata.is_dir() && metadata.mode() & 0o1000 != 0 {
        Ok(())
    } else {
        check_mode(path, &metadata, Access::Read)
    }
    .map_err(|exposure| Exposure { mode: None, ..exposure })
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), Exposure> {
    if metadata.uid() == 0 || is_outside_namespace(metadata.uid()) {
        return Ok(());
    }
    let what = format!("belongs to user {}, who could change what root does", metadata.uid());
    Err(Exposure {
        place: path.to_owned(),
        what,
        cure: format!("run `chown root {}`", path.display()),
        mode: None,
    })
}

fn check_mode(path: &Path, metadata: &Metadata, access: Access) -> Result<(), Exposure> {
    let (place, mode) = (path.display(), metadata.mode() & 0o7777);
    let is_root = rustix::process::geteuid().is_root();
    let (excess, what, cure) = match access {
        Access::Read => {
            let whom = if is_root { "root" } else { "this user" };
            let what = format!(
                "is writable by other users (mode {mode:04o}), who could change what {whom} does"
            );
            (0o022, what, format!("run `chmod go-w {place}`"))
        }
        Access::GroupRead | Access::Nothing => {
            let excess = if access == Access::Nothing { 0o077 } else { 0o027 };
            let what = format!("is accessible by other users (mode {mode:04o}) and holds secrets");
            (
                excess,
                what,
                format!("run `chmod {} {place}`", if metadata.is_dir() { "700" } else { "600" }),
            )
        }
    };
    match mode & excess {
        0 => Ok(()),
        _ => Err(Exposure { place: path.to_owned(), what, cure, mode: Some(mode) }),
    }
}

/// Within a user namespace, files of users outside of it have this owner. Nobody inside can become
/// that user.
fn is_outside_namespace(uid: u32) -> bool {
    let map = || std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    uid == OVERFLOW_UID && map().split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

const OVERFLOW_UID: u32 = 65534;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn fault(path: &Path, access: Access) -> Option<(PathBuf, Option<u32>)> {
        find_exposure(path, access).unwrap().map(|exposure| (exposure.place, exposure.mode))
    }

    #[test]
    fn modes_are_those_that_are_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert_eq!(fault(&path, Access::Nothing), None, "a missing file");
        std::fs::write(&path, "").unwrap();
        for (bits, read, group, nothing) in [
            (0o600, true, true, true),
            (0o400, true, true, true),
            (0o640, true, true, false),
            (0o644, true, false, false),
            (0o604, true, false, false),
            (0o660, false, false, false),
            (0o602, false, false, false),
        ] {
            mode(&path, bits);
            for (access, fits) in
                [(Access::Read, read), (Access::GroupRead, group), (Access::Nothing, nothing)]
            {
                assert_eq!(
                    fault(&path, access),
                    (!fits).then(|| (path.clone(), Some(bits))),
                    "{bits:o} {access:?}"
                );
            }
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn root_trusts_no_other_owner_and_no_directory_that_others_may_change() {
        let directory = tempfile::tempdir().unwrap();
        let (above, path) = (directory.path().join("above"), directory.path().join("above/state"));
        std::fs::create_dir_all(&path).unwrap();
        mode(&path, 0o700);
        assert_eq!(fault(&path, Access::Nothing), None);
        // A mode of 0700 protects the files of the directory's owner.
        chown(&path, Some(4242), None).unwrap();
        assert_eq!(fault(&path, Access::Nothing), Some((path.clone(), None)));
        chown(&path, Some(0), None).unwrap();
        // A user who can rename the directory can put another in its place.
        for (owner, bits, fits) in [
            (4242, 0o755, false),
            (0, 0o777, false),
            (0, 0o1777, true),
            (0, 0o775, false),
            (0, 0o755, true),
        ] {
            chown(&above, Some(owner), None).unwrap();
            mode(&above, bits);
            let link = directory.path().join(format!("link{bits:o}{owner}"));
            std::os::unix::fs::symlink(&path, &link).unwrap();
            for path in [&path, &link] {
                assert_eq!(
                    fault(path, Access::Nothing),
                    (!fits).then(|| (above.canonicalize().unwrap(), None)),
                    "{owner} {bits:o}"
                );
            }
        }
    }
}
