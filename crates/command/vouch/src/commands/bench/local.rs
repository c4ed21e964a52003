use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use vouch_bench::case::AuditWork;
use vouch_bench::subject::{AuditGuard, AuditMode, AuditSubject, ExportSubject, Rules};
use vouch_bench::workload::{self, audit};
use vouch_bench::{Run, StopFlag, Subject};

use super::measure::{BenchRequest, Measure, Part};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use crate::size;

/// Measure Kerberos message protection on one core: each encryption type and implementation, beside
/// OpenSSL.
///
/// Takes about a minute: 1 and 16 messages of 256 bytes, 4 KiB and 64 KiB, six rounds, and one
/// second of OpenSSL for each algorithm and size.
#[derive(Debug, clap::Args)]
pub(super) struct Seal {
    /// Encryption types; all if not given: aes128-cts-hmac-sha1-96, aes256-cts-hmac-sha1-96,
    /// aes128-cts-hmac-sha256-128, aes256-cts-hmac-sha384-192.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = enctype)]
    enctypes: Option<Vec<String>>,
    /// Message sizes in bytes.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = message)]
    sizes: Option<Vec<u64>>,
    /// Long run, up to an hour: 1 to 64 messages of up to 1 MiB, up to ten rounds, and OpenSSL anew
    /// in each round.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    #[command(flatten)]
    measure: Measure,
}

impl Seal {
    pub(super) fn run(mut self, global: &Global) -> Outcome {
        let mut how = if self.full { workload::Seal::full() } else { of_seal(self.measure.quick) };
        if !self.full {
            self.measure.limit_rounds(STANDARD_ROUNDS);
        }
        how.enctypes = self.enctypes.unwrap_or(how.enctypes);
        how.lens = self
            .sizes
            .map_or(how.lens, |sizes| sizes.into_iter().map(|len| len as usize).collect());
        self.measure.run(global, &BenchRequest::new(), vec![seal(how)])
    }
}

/// The fewest rounds that give confidence intervals.
const STANDARD_ROUNDS: u16 = vouch_bench::runner::Rounds::FULL.min as u16;

pub(super) fn of_seal(quick: bool) -> workload::Seal {
    if quick { workload::Seal::quick() } else { workload::Seal::standard() }
}

pub(super) fn seal<'a>(how: workload::Seal) -> Part<'a> {
    Part::new(|_: &mut Run, _: &StopFlag| Ok(Vec::new()), move |bench| workload::seal(bench, &how))
}

/// Measure the cost of auditing: the same work without kernel auditing, with file watches, with
/// system call rules, and with CAPP's rules (LANL's auditd); and on an export with Vouch's trail or
/// a kernel watch.
///
/// The kernel part needs root, CAP_AUDIT_CONTROL and a machine with unused kernel auditing: it sets
/// rules and removes all of them at the end.
#[derive(Debug, clap::Args)]
pub(super) struct Audit {
    /// Directory for the files: tmpfs, or the file system to measure.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// Number of files.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    files: Option<u64>,
    /// Leave out kernel auditing: measure only the export and its trail.
    #[arg(long)]
    no_kernel: bool,
    #[command(flatten)]
    measure: Measure,
}

impl Audit {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let files = self.files.unwrap_or(if self.measure.quick { 2_000 } else { 50_000 });
        self.measure.run(
            global,
            &BenchRequest::new(),
            audit_parts(&self.dir, files, !self.no_kernel),
        )
    }
}

pub(super) fn audit_parts(directory: &Path, files: u64, kernel: bool) -> Vec<Part<'_>> {
    std::iter::once(exported_part(directory, files, kernel))
        .chain(kernel.then(|| local_part(directory, files)))
        .collect()
}

fn exported_part(directory: &Path, files: u64, kernel: bool) -> Part<'_> {
    let subjects = move |run: &mut Run, stop: &StopFlag| {
        let program = std::env::current_exe().at("this program")?;
        let mut audited = vec![AuditMode::None, AuditMode::Trail];
        match kernel.then(AuditGuard::take) {
            None => {}
            Some(Ok(guard)) => audited.push(AuditMode::Kernel(guard)),
            Some(Err(why)) => {
                run.left_out.push(format!("an export under the kernel's audit: {why}"))
            }
        }
        let subject = |audited| {
            Box::new(ExportSubject::new(&program, directory, audited, stop)) as Box<dyn Subject>
        };
        Ok(audited.into_iter().map(subject).collect())
    };
    Part::new(subjects, move |bench| bench.run_all(&audit::exported(files)))
}

fn local_part(directory: &Path, files: u64) -> Part<'_> {
    let built: Rc<OnceCell<Arc<workload::Mpi>>> = Rc::default();
    let by_mpi = built.clone();
    let subjects = move |run: &mut Run, stop: &StopFlag| {
        let worker: Vec<OsString> =
            vec![std::env::current_exe().at("this program")?.into(), "bench".into(), "work".into()];
        // Claims kernel auditing while the first subject lives.
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
            Box::new(
                AuditSubject::new(rules, directory, worker.clone(), guard.take(), stop)
                    .with_mpi(built.get().cloned()),
            ) as Box<dyn Subject>
        });
        Ok(all.into())
    };
    Part::new(subjects, move |bench| bench.run_all(&audit::audit(files, by_mpi.get().is_some())))
}

/// Audited work, in a process of its own.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct Work {
    /// Kind of work.
    #[arg(value_parser = |name: &str| AuditWork::named(name).ok_or("no such work"))]
    work: AuditWork,
    /// Number of files.
    files: u64,
    /// Directory.
    dir: PathBuf,
}

impl Work {
    pub(super) fn run(self) -> Outcome {
        audit::work(self.work, self.files, &self.dir).at(self.dir.display())
    }
}

fn enctype(name: &str) -> Result<String, String> {
    let all = workload::Seal::all();
    if all.iter().any(|other| other == name) {
        Ok(name.to_owned())
    } else {
        Err(format!("one of {}", all.join(", ")))
    }
}

fn message(text: &str) -> Result<u64, String> {
    let len = size::parse(text)?;
    if (1..=1 << 20).contains(&len) { Ok(len) } else { Err("from 1 byte to 1M".into()) }
}
