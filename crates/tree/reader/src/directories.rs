use std::path::{Path, PathBuf};

/// Key statements of this machine, always read if it exists.
pub const STATEMENTS: &str = "/etc/vouch/statements";

/// Remembers the newest revision seen of each tree. `None`: HOME is not set.
pub fn state_directory() -> Option<PathBuf> {
    directory("/var/lib/vouch", "XDG_STATE_HOME", ".local/state")
}

/// The disk cache. `None`: HOME is not set.
pub fn cache_directory() -> Option<PathBuf> {
    directory("/var/cache/vouch", "XDG_CACHE_HOME", ".cache")
}

/// Root's directory, or the user's (XDG base directory specification).
fn directory(of_root: &str, variable: &str, below_home: &str) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(of_root.into());
    }
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base =
        named.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(below_home)));
    base.map(|base| base.join("vouch"))
}
