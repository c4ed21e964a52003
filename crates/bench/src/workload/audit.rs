//! Cost of the kernel's audit, after LANL's study of auditd: no rules, watches, system-call rules,
//! and CAPP rules. Work runs in a process of its own, because the kernel audits only processes that
//! start after it was enabled.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use crate::Case;
use crate::case::{AuditWork, Metric};
use crate::runner::PlannedCase;

/// Cases with so many files. One uses MPI, where it is installed.
pub fn audit(files: u64, mpi: bool) -> Vec<PlannedCase> {
    let case =
        |name: &str, work| PlannedCase { metric: Metric::Seconds, ..PlannedCase::new("audit", "Time", name, Case::Audit { work, files }) };
    let all =
        [case("create, append, remove", AuditWork::Files), case("system calls", AuditWork::SystemCalls), case("hybrid", AuditWork::Hybrid)];
    all.into_iter().chain(mpi.then(|| case("MPI", AuditWork::Mpi))).collect()
}

pub fn exported(files: u64) -> Vec<PlannedCase> {
    vec![PlannedCase::new("audit", "Time, by NFS", "create, append, remove", Case::Changes { files, depth: DEPTH })]
}

const DEPTH: u32 = 16;

/// Does the work in a directory. Runs in the measured process.
pub fn work(work: AuditWork, files: u64, directory: &Path) -> io::Result<()> {
    match work {
        AuditWork::Mpi => Err(io::Error::other("the MPI program does this work")),
        AuditWork::Files => mass(files, directory),
        AuditWork::SystemCalls => calls(files, directory),
        AuditWork::Hybrid => {
            let mut seed = 1;
            for part in 0..10 {
                (0..2_000_000u64).for_each(|_| seed = crate::content::mix(seed));
                let directory = directory.join(format!("part-{part}"));
                fs::create_dir(&directory)?;
                mass(files / 20, &directory)?;
                calls(files / 100, &directory)?;
                fs::remove_dir_all(&directory)?;
            }
            if seed == 0 { Err(io::Error::other("the computation ended in zero")) } else { Ok(()) }
        }
    }
}

fn mass(files: u64, directory: &Path) -> io::Result<()> {
    use io::Write as _;
    let path = |number| directory.join(format!("file{number}"));
    (0..files).try_for_each(|number| fs::write(path(number), b"a line\n"))?;
    (0..files).try_for_each(|number| fs::File::options().append(true).open(path(number))?.write_all(b"and another\n"))?;
    (0..files).try_for_each(|number| fs::remove_file(path(number)))
}

fn calls(files: u64, directory: &Path) -> io::Result<()> {
    let path = directory.join("file");
    fs::write(&path, b"")?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for number in 0..files {
        fs::set_permissions(&path, fs::Permissions::from_mode(if number % 2 == 0 { 0o600 } else { 0o644 }))?;
        chown(&path, Some(uid), Some(gid))?;
        fs::rename(&path, directory.join("other"))?;
        fs::rename(directory.join("other"), &path)?;
    }
    fs::remove_file(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_leaves_no_files() {
        for kind in AuditWork::ALL.into_iter().filter(|kind| *kind != AuditWork::Mpi) {
            let directory = tempfile::tempdir().expect("a directory");
            work(kind, 100, directory.path()).expect("ordinary files");
            assert_eq!(fs::read_dir(directory.path()).expect("the file exists").count(), 0, "{kind:?}");
            assert_eq!(AuditWork::named(kind.name()), Some(kind));
        }
    }
}
