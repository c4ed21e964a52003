//! The kernel's audit while one server is measured, with a watch on the exported directory: the
//! peer of a trail of our own.

use std::path::Path;
use std::process::Command;

use vouch_bench::subject::AuditGuard;

use crate::OrStop as _;

/// The kernel's audit, with auditd writing its log; off again when dropped.
pub struct KernelAudit {
    _guard: AuditGuard,
}

impl KernelAudit {
    /// Takes it. On from now until the first [`KernelAudit::off`]: the kernel audits processes that
    /// began while it was on.
    pub fn take() -> Self {
        let guard = AuditGuard::take().or_stop("the kernel's audit");
        auditctl(&["-e", "1"]);
        // Waiting is what it is meant for; a queue of auditd's usual length.
        auditctl(&["-b", "8192"]);
        KernelAudit { _guard: guard }
    }

    /// Watches a directory, reads and writes by what is open included, as rules that record
    /// everything do.
    pub fn watch(&self, directory: &Path) {
        auditctl(&["-e", "1"]);
        let dir = format!("dir={}", directory.display());
        auditctl(&["-a", "always,exit", "-F", "arch=b64", "-F", &dir, "-F", "perm=rwxa"]);
    }

    /// No more.
    pub fn off(&self) {
        auditctl(&["-D"]);
        auditctl(&["-e", "0"]);
    }

    /// Records that the kernel has lost so far.
    pub fn lost(&self) -> u64 {
        let status = auditctl(&["-s"]);
        status.lines().find_map(|line| line.strip_prefix("lost ")?.trim().parse().ok()).unwrap_or(0)
    }
}

fn auditctl(args: &[&str]) -> String {
    let output = Command::new("auditctl").args(args).output().or_stop("auditctl");
    if !output.status.success() {
        Err::<(), _>(String::from_utf8_lossy(&output.stderr)).or_stop(format!("auditctl {}", args.join(" ")));
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}
