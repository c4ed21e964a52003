//! Limits a compromised service to its files and open sockets: Landlock, no_new_privs,
//! capabilities.

use std::fmt;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::log_output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxMode {
    /// As far as the kernel supports it; a warning if it doesn't.
    #[default]
    BestEffort,
    /// Refuse to run if the kernel can't restrict files.
    Required,
    Off,
}

#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    pub read: &'a [&'a Path],
    pub write: &'a [&'a Path],
    /// Connections to TCP ports. New listening sockets are never allowed.
    pub connects: bool,
    pub capabilities: CapabilitySet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub files: bool,
    /// Landlock restricts TCP sockets and signals too.
    pub sockets: bool,
    pub capabilities: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |on: bool| if on { "restricted" } else { "not restricted" };
        write!(
            f,
            "files {}, TCP sockets and signals {}, capabilities {}",
            word(self.files),
            word(self.sockets),
            word(self.capabilities)
        )
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("{path}: {source}")]
    Path { path: String, source: landlock::PathFdError },
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("privileges: {0}")]
    Privileges(#[from] rustix::io::Errno),
    #[error(
        "this kernel has no landlock (Linux 5.13 and later, in the list of CONFIG_LSM or lsm=)"
    )]
    Missing,
}

/// For this thread and those that it starts later: call this before any thread starts.
pub fn enter(access: &Access<'_>, mode: SandboxMode) -> Result<(), SandboxError> {
    if mode == SandboxMode::Off {
        tracing::warn!("no sandbox: a compromise of this process could read whatever its user can");
        return Ok(());
    }
    let applied = apply(access, mode)?;
    if applied.files {
        tracing::info!("sandbox: {applied}");
    } else {
        tracing::warn!("sandbox: {applied}; this kernel has no landlock");
    }
    Ok(())
}

fn apply(access: &Access<'_>, mode: SandboxMode) -> Result<Applied, SandboxError> {
    rustix::thread::set_no_new_privs(true)?;
    let (files, sockets) = restrict(access)?;
    if !files && mode == SandboxMode::Required {
        return Err(SandboxError::Missing);
    }
    Ok(Applied { files, sockets, capabilities: drop_capabilities(access.capabilities)? })
}

fn restrict(access: &Access<'_>) -> Result<(bool, bool), SandboxError> {
    // A service that connects resolves names, which may need the sockets of other daemons.
    let files = AccessFs::from_all(NEWEST)
        & !if access.connects { AccessFs::ResolveUnix.into() } else { BitFlags::EMPTY };
    let sockets =
        if access.connects { AccessNet::BindTcp.into() } else { AccessNet::from_all(NEWEST) };
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(files)?
        .handle_access(sockets)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let make = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::Refer;
    let write = read
        | make
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir;
    for (path, rights) in access
        .read
        .iter()
        .map(|path| (*path, read))
        .chain(access.write.iter().map(|path| (*path, write)))
    {
        // The kernel refuses rights of directories for a file.
        let rights = if path.is_file() { rights & AccessFs::from_file(NEWEST) } else { rights };
        let fd = PathFd::new(path)
            .map_err(|source| SandboxError::Path { path: path.display().to_string(), source })?;
        ruleset = ruleset.add_rule(PathBeneath::new(fd, rights))?;
    }
    if let Some(log) = log_output::directory() {
        let fd = PathFd::new(log)
            .map_err(|source| SandboxError::Path { path: log.display().to_string(), source })?;
        ruleset =
            ruleset.add_rule(PathBeneath::new(fd, AccessFs::MakeReg | AccessFs::WriteFile))?;
    }
    let status = ruleset.restrict_self()?;
    let sockets = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi >= ABI::V6,
        _ => false,
    };
    Ok((status.ruleset != RulesetStatus::NotEnforced, sockets))
}

fn drop_capabilities(keep: CapabilitySet) -> Result<bool, SandboxError> {
    let kept = rustix::thread::capabilities(None)?.permitted & keep;
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(rustix::thread::capabilities(None)?.permitted == kept)
}

/// Rights on files (1 to 3, 5), TCP (4), signals and abstract sockets (6), UNIX sockets by path (9).
const NEWEST: ABI = ABI::V9;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    fn reading<'a>(read: &'a [&'a Path]) -> Access<'a> {
        Access { read, write: &[], connects: false, capabilities: CapabilitySet::empty() }
    }

    fn in_sandbox(directory: &Path, test: impl FnOnce(&Path) + Send) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let applied = apply(&reading(&[directory]), SandboxMode::BestEffort).unwrap();
                assert!(applied.files, "this kernel has no Landlock");
                test(directory);
            });
            thread.join().unwrap();
        });
    }

    #[test]
    #[ignore = "needs Landlock"]
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
                assert_eq!(
                    fs::write(inside.join("new"), "x").unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
                assert_eq!(
                    fs::remove_file(inside.join("new")).unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
            });
        });
    }

    #[test]
    #[ignore = "needs Landlock"]
    fn nothing_can_be_executed() {
        let inside = tempfile::tempdir().unwrap();
        in_sandbox(inside.path(), |_| {
            assert_eq!(
                std::process::Command::new("/bin/true").status().unwrap_err().kind(),
                ErrorKind::PermissionDenied
            );
        });
    }

    #[test]
    #[ignore = "needs Landlock"]
    fn open_listener_works_and_new_sockets_are_refused() {
        let inside = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let applied = apply(&reading(&[inside.path()]), SandboxMode::BestEffort).unwrap();
                assert!(applied.sockets, "Landlock of this kernel does not know sockets");
                assert_eq!(
                    TcpStream::connect(address).unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
                assert_eq!(
                    TcpListener::bind("127.0.0.1:0").unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
                assert!(listener.accept().is_ok());
            });
            thread.join().unwrap();
        });
        drop(client);
    }

    #[test]
    #[ignore = "needs Landlock"]
    fn service_that_connects_cannot_listen_or_write_elsewhere() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let read = [outside.path()];
                let access = Access { write: &[inside.path()], connects: true, ..reading(&read) };
                let applied = apply(&access, SandboxMode::BestEffort).unwrap();
                assert!(applied.sockets, "Landlock of this kernel does not know sockets");
                assert!(TcpStream::connect(address).is_ok());
                assert_eq!(
                    TcpListener::bind("127.0.0.1:0").unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
                fs::create_dir(inside.path().join("d")).unwrap();
                fs::write(inside.path().join("d/a"), "x").unwrap();
                fs::rename(inside.path().join("d/a"), inside.path().join("b")).unwrap();
                assert_eq!(
                    fs::write(outside.path().join("a"), "x").unwrap_err().kind(),
                    ErrorKind::PermissionDenied
                );
            });
            thread.join().unwrap();
        });
    }
}
