use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// `$VOUCH_RUNTIME_DIR`; else the service manager's `$RUNTIME_DIRECTORY`; else /run/vouch for root,
/// and `$XDG_RUNTIME_DIR/vouch` for other users.
pub fn of_process() -> Option<PathBuf> {
    let from_manager =
        || env::var_os("RUNTIME_DIRECTORY").and_then(|list| env::split_paths(&list).next());
    named().or_else(|| from_manager().filter(|path| path.is_absolute())).or_else(without_manager)
}

/// The same for a service and for commands of its user: `$VOUCH_RUNTIME_DIR`; else /run/vouch for
/// root, and `$XDG_RUNTIME_DIR/vouch` for other users.
pub fn of_user_account() -> Option<PathBuf> {
    named().or_else(without_manager)
}

fn without_manager() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() { Some(SYSTEM.into()) } else { of_user() }
}

/// Directories that this user may read.
pub fn all() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = match named() {
        Some(directory) => vec![directory],
        None => [Some(SYSTEM.into()), of_user()].into_iter().flatten().collect(),
    };
    if named().is_none() && rustix::process::geteuid().is_root() {
        roots
            .extend(directories_in(Path::new(OF_USERS)).into_iter().map(|user| user.join("vouch")));
    }
    let below: Vec<PathBuf> = roots.iter().flat_map(|root| directories_in(root)).collect();
    roots.extend(below);
    roots.sort();
    roots.dedup();
    roots
}

/// Others may list the directory; the sockets in it have their own permissions.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn named() -> Option<PathBuf> {
    env::var_os("VOUCH_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn of_user() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .map(|path| path.join("vouch"))
}

fn directories_in(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .take(DIRECTORIES_MAX)
        .collect()
}

const SYSTEM: &str = "/run/vouch";
const OF_USERS: &str = "/run/user";

/// Directories below each root: more than the users who run daemons.
const DIRECTORIES_MAX: usize = 1024;
