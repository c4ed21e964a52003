//! Sandbox: limits a compromised replica to reading databases and answering on open sockets.
//! Landlock for files, new TCP sockets and signals; no_new_privs; at most one capability.

use std::fmt;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Sandbox mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxMode {
    /// As far as the kernel supports it; a warning if it doesn't.
    #[default]
    BestEffort,
    /// Refuse to run if the kernel can't restrict files.
    Required,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) files: bool,
    /// Landlock restricts TCP sockets and signals too.
    pub(super) sockets: bool,
    pub(super) capabilities: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |on: bool| if on { "restricted" } else { "not restricted" };
        write!(f, "files {}, TCP sockets and signals {}, capabilities {}", word(self.files), word(self.sockets), word(self.capabilities))
    }
}

/// Sandbox errors.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A permitted directory can't be opened.
    #[error("{path}: {source}")]
    Path { path: String, source: landlock::PathFdError },
    /// The kernel refused the rules.
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("privileges: {0}")]
    Privileges(#[from] rustix::io::Errno),
    /// The kernel has no Landlock, and it is required.
    #[error("this kernel has no landlock (Linux 5.13 and later, in the list of CONFIG_LSM or lsm=)")]
    Missing,
}

/// `writable`: the directory of received statements.
pub(super) fn apply(directories: &[&Path], writable: Option<&Path>, mode: SandboxMode) -> Result<Applied, SandboxError> {
    rustix::thread::set_no_new_privs(true)?;
    let (files, sockets) = restrict(directories, writable)?;
    if !files && mode == SandboxMode::Required {
        return Err(SandboxError::Missing);
    }
    Ok(Applied { files, sockets, capabilities: drop_capabilities()? })
}

fn restrict(directories: &[&Path], writable: Option<&Path>) -> Result<(bool, bool), SandboxError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
    for (path, rights) in directories.iter().map(|path| (*path, read)).chain(writable.map(|path| (path, write))) {
        let fd = PathFd::new(path).map_err(|source| SandboxError::Path { path: path.display().to_string(), source })?;
        ruleset = ruleset.add_rule(PathBeneath::new(fd, rights))?;
    }
    let status = ruleset.restrict_self()?;
    let sockets = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi >= NEWEST,
        _ => false,
    };
    Ok((status.ruleset != RulesetStatus::NotEnforced, sockets))
}

/// Drops all capabilities but reading files of other users: a publisher may be another user, and
/// Landlock limits this right to the databases. Returns whether it succeeded.
fn drop_capabilities() -> Result<bool, SandboxError> {
    let kept = rustix::thread::capabilities(None)?.permitted & CapabilitySet::DAC_READ_SEARCH;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(rustix::thread::capabilities(None)?.permitted == kept)
}

/// Landlock version whose rights are requested: files (1 to 3, 5), TCP (4), signals and abstract
/// sockets (6).
const NEWEST: ABI = ABI::V6;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    /// Bypasses the capture of test output, so that the skip is visible.
    fn skip(why: &str) {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", std::thread::current().name().unwrap_or("sandbox"));
    }

    fn in_sandbox(directory: &Path, test: impl FnOnce(&Path) + Send) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let applied = apply(&[directory], None, SandboxMode::BestEffort).unwrap();
                if applied.files {
                    test(directory);
                } else {
                    skip("this kernel has no landlock, so nothing is refused");
                }
            });
            thread.join().unwrap();
        });
    }

    #[test]
    fn later_files_in_databases_are_readable_and_no_others() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = outside.path().join("secret");
        fs::write(&secret, "s").unwrap();
        let (come, stay) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let new = inside.path().join("new");
            scope.spawn(move || {
                stay.recv().unwrap();
                fs::write(new, "n").unwrap();
                drop(done);
            });
            in_sandbox(inside.path(), move |inside| {
                come.send(()).unwrap();
                let _ = wait.recv();
                assert_eq!(fs::read(inside.join("new")).unwrap(), b"n");
                assert_eq!(fs::read(&secret).unwrap_err().kind(), ErrorKind::PermissionDenied);
                assert_eq!(fs::write(inside.join("new"), "x").unwrap_err().kind(), ErrorKind::PermissionDenied);
                assert_eq!(fs::remove_file(inside.join("new")).unwrap_err().kind(), ErrorKind::PermissionDenied);
            });
        });
    }

    #[test]
    fn nothing_can_be_executed() {
        let inside = tempfile::tempdir().unwrap();
        in_sandbox(inside.path(), |_| {
            assert_eq!(std::process::Command::new("/bin/true").status().unwrap_err().kind(), ErrorKind::PermissionDenied);
        });
    }

    #[test]
    fn open_listener_works_and_new_sockets_are_refused() {
        let inside = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if apply(&[inside.path()], None, SandboxMode::BestEffort).unwrap().sockets {
                    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::PermissionDenied);
                    assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), ErrorKind::PermissionDenied);
                } else {
                    skip("this kernel's landlock does not know sockets and signals");
                }
                assert!(listener.accept().is_ok());
            });
            thread.join().unwrap();
        });
        drop(client);
    }
}
