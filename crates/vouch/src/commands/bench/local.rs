//! Workloads that need no server: `vouch bench seal` and `audit`.

use std::ffi::OsString;
use std::path::PathBuf;

use vouch_bench::case::AuditWork;
use vouch_bench::plan::{self, audit};
use vouch_bench::{Run, Stop, Subject};

use super::measure::{Measure, Part};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};

/// Kerberos message protection on one core: each encryption type and set of kernels, beside OpenSSL.
#[derive(Debug, clap::Args)]
pub(super) struct Seal {
    #[command(flatten)]
    measure: Measure,
}

impl Seal {
    /// Measures.
    pub(super) fn run(self, global: &Global) -> Outcome {
        self.measure.run(global, vec![seal(self.measure.quick)])
    }
}

/// The part of a run that measures message protection.
pub(super) fn seal<'a>(quick: bool) -> Part<'a> {
    let how = if quick { plan::Seal::quick() } else { plan::Seal::full() };
    Part { subjects: Box::new(|_: &mut Run, _: &Stop| Ok(Vec::new())), work: Box::new(move |bench| plan::seal(bench, &how)) }
}

/// The same work with the kernel's audit off, with file watches, with system calls, with CAPP's rules (LANL's auditd).
///
/// Needs root and CAP_AUDIT_CONTROL, and a machine whose audit nobody uses: it is told rules and has none at the end.
#[derive(Debug, clap::Args)]
pub(super) struct Audit {
    /// Where the files are made; tmpfs, or a file system that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// How many files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    files: Option<u64>,
    #[command(flatten)]
    measure: Measure,
}

impl Audit {
    /// Measures.
    pub(super) fn run(self, global: &Global) -> Outcome {
        self.measure.run(global, vec![audit_part(&self.dir, self.files.unwrap_or(if self.measure.quick { 2_000 } else { 50_000 }))])
    }
}

/// The part of a run that measures audit.
pub(super) fn audit_part(directory: &std::path::Path, files: u64) -> Part<'_> {
    let subjects = move |run: &mut Run, stop: &Stop| {
        let worker: Vec<OsString> = vec![std::env::current_exe().at("this program")?.into(), "bench".into(), "work".into()];
        // While the first subject lives the kernel's audit is ours.
        let guard = audit::AuditGuard::take().map_err(|why| Failure::refused("audit", why))?;
        run.machine.with_version("auditctl", "-v");
        if std::process::Command::new("mpirun").arg("--version").output().is_err() {
            run.left_out.push("the MPI benchmark: mpirun is not installed".into());
        }
        let mut guard = Some(guard);
        let all = audit::Rules::ALL
            .map(|rules| Box::new(audit::AuditSubject::new(rules, directory, worker.clone(), guard.take(), stop)) as Box<dyn Subject>);
        Ok(all.into())
    };
    Part { subjects: Box::new(subjects), work: Box::new(move |bench| bench.all(&audit::audit(files))) }
}

/// What `audit` measures, in a process of its own.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Work {
    /// Which.
    #[arg(value_parser = |name: &str| AuditWork::named(name).ok_or("no such work"))]
    work: AuditWork,
    /// How many files.
    files: u64,
    /// Where.
    dir: PathBuf,
}

impl Work {
    /// Does it.
    pub(super) fn run(self) -> Outcome {
        audit::work(self.work, self.files, &self.dir).at(self.dir.display())
    }
}
