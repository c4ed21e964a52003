//! Workloads that need no server: `vouch bench seal` and `audit`.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use vouch_bench::case::AuditWork;
use vouch_bench::subject::{AuditGuard, AuditMode, AuditSubject, ExportSubject, Rules};
use vouch_bench::workload::{self, audit};
use vouch_bench::{Run, StopFlag, Subject};

use super::measure::{Measure, Part, Wish};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::size;

/// Kerberos message protection on one core: each encryption type and set of kernels, beside
/// OpenSSL.
#[derive(Debug, clap::Args)]
pub(super) struct Seal {
    /// Encryption types, all unless told: aes128-cts-hmac-sha1-96, aes256-cts-hmac-sha1-96,
    /// aes128-cts-hmac-sha256-128, aes256-cts-hmac-sha384-192.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = enctype)]
    enctypes: Option<Vec<String>>,
    /// Bytes of a message.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = message)]
    sizes: Option<Vec<u64>>,
    #[command(flatten)]
    measure: Measure,
}

impl Seal {
    /// Measures.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let mut how = of_seal(self.measure.quick);
        how.enctypes = self.enctypes.unwrap_or(how.enctypes);
        how.lens = self.sizes.map_or(how.lens, |sizes| sizes.into_iter().map(|len| len as usize).collect());
        self.measure.run(global, &Wish::new(), vec![seal(how)])
    }
}

/// How message protection is measured.
pub(super) fn of_seal(quick: bool) -> workload::Seal {
    if quick { workload::Seal::quick() } else { workload::Seal::full() }
}

/// The part of a run that measures it.
pub(super) fn seal<'a>(how: workload::Seal) -> Part<'a> {
    Part::new(|_: &mut Run, _: &StopFlag| Ok(Vec::new()), move |bench| workload::seal(bench, &how))
}

/// What audit costs: the same work with the kernel's audit off, with file watches, with system
/// calls, with CAPP's rules (LANL's auditd); and on an export, with our own trail or the kernel's
/// watch.
///
/// The kernel's needs root and CAP_AUDIT_CONTROL, and a machine whose audit nobody uses: it is told
/// rules and has none at the end.
#[derive(Debug, clap::Args)]
pub(super) struct Audit {
    /// Where the files are made; tmpfs, or a file system that is to be measured.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// How many files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    files: Option<u64>,
    /// Leave the kernel's audit alone: the export and its trail only.
    #[arg(long)]
    no_kernel: bool,
    #[command(flatten)]
    measure: Measure,
}

impl Audit {
    /// Measures.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let files = self.files.unwrap_or(if self.measure.quick { 2_000 } else { 50_000 });
        self.measure.run(global, &Wish::new(), audit_parts(&self.dir, files, !self.no_kernel))
    }
}

/// The parts of a run that measure audit.
pub(super) fn audit_parts(directory: &Path, files: u64, kernel: bool) -> Vec<Part<'_>> {
    std::iter::once(exported_part(directory, files, kernel)).chain(kernel.then(|| local_part(directory, files))).collect()
}

/// An export without a record, with our trail, with the kernel's.
fn exported_part(directory: &Path, files: u64, kernel: bool) -> Part<'_> {
    let subjects = move |run: &mut Run, stop: &StopFlag| {
        let program = std::env::current_exe().at("this program")?;
        let mut audited = vec![AuditMode::None, AuditMode::Trail];
        match kernel.then(AuditGuard::take) {
            None => {}
            Some(Ok(guard)) => audited.push(AuditMode::Kernel(guard)),
            Some(Err(why)) => run.left_out.push(format!("an export under the kernel's audit: {why}")),
        }
        let subject = |audited| Box::new(ExportSubject::new(&program, directory, audited, stop)) as Box<dyn Subject>;
        Ok(audited.into_iter().map(subject).collect())
    };
    Part::new(subjects, move |bench| bench.run_all(&audit::exported(files)))
}

/// Work on the machine's own files under the kernel's audit.
fn local_part(directory: &Path, files: u64) -> Part<'_> {
    // Known once the subjects are made, and asked when the plan is.
    let built: Rc<OnceCell<Arc<workload::Mpi>>> = Rc::default();
    let by_mpi = built.clone();
    let subjects = move |run: &mut Run, stop: &StopFlag| {
        let worker: Vec<OsString> = vec![std::env::current_exe().at("this program")?.into(), "bench".into(), "work".into()];
        // While the first subject lives the kernel's audit is ours.
        let guard = AuditGuard::take().map_err(|why| Failure::refused("audit", why))?;
        run.machine.with_version("auditctl", "-v");
        match workload::Mpi::build() {
            Ok(mpi) => {
                run.machine.with_version("mpirun", "--version");
                let _ = built.set(Arc::new(mpi));
            }
            Err(why) => run.left_out.push(format!("audit by MPI: {why}")),
        }
        let mut guard = Some(guard);
        let all = Rules::ALL.map(|rules| {
            Box::new(AuditSubject::new(rules, directory, worker.clone(), guard.take(), stop).with_mpi(built.get().cloned()))
                as Box<dyn Subject>
        });
        Ok(all.into())
    };
    Part::new(subjects, move |bench| bench.run_all(&audit::audit(files, by_mpi.get().is_some())))
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

fn enctype(name: &str) -> Result<String, String> {
    let all = workload::Seal::all();
    if all.iter().any(|other| other == name) { Ok(name.to_owned()) } else { Err(format!("one of {}", all.join(", "))) }
}

fn message(text: &str) -> Result<u64, String> {
    let len = size::parse(text)?;
    if (1..=1 << 20).contains(&len) { Ok(len) } else { Err("from 1 byte to 1M".into()) }
}
