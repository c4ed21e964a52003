//! After LANL's study of auditd: four sets of rules, on files, system calls, memory and MPI.

use std::fs;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::time::Instant;

use crate::Case;
use crate::case::{AuditWork, Metric};
use crate::runner::PlannedCase;

pub fn audit(files: u64, mpi: bool) -> Vec<PlannedCase> {
    use AuditWork as Work;
    use Metric::{BytesPerSecond, OperationsPerSecond, Seconds};
    let case = |(panel, name, work, metric): (&str, &str, Work, Metric)| PlannedCase {
        metric,
        ..PlannedCase::new("audit", panel, name, Case::Audit { work, files })
    };
    let local = [
        ("Time", "create, append, remove", Work::Files, Seconds),
        ("Time", "system calls", Work::SystemCalls, Seconds),
        ("Time", "hybrid", Work::Hybrid, Seconds),
        ("Memory bandwidth", "copy, scale, add, triad", Work::Memory, BytesPerSecond),
    ];
    let ranks = [
        ("MPI, two ranks", "files of one directory", Work::Mpi, Seconds),
        ("MPI, two ranks", "latency, 8 B there and back", Work::MpiLatency, OperationsPerSecond),
        ("MPI, two ranks", "bandwidth, 1 MiB there and back", Work::MpiBandwidth, BytesPerSecond),
        ("MPI, two ranks", "exchange of 1 MiB", Work::MpiExchange, BytesPerSecond),
        ("MPI, two ranks", "collectives", Work::MpiCollectives, OperationsPerSecond),
    ];
    local.into_iter().map(case).chain(ranks.into_iter().filter(|_| mpi).map(case)).collect()
}

/// Its own clock leaves out the start of the program.
#[derive(Debug, PartialEq)]
pub(crate) struct WorkReport {
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

impl WorkReport {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["seconds", seconds, "operations", operations, "bytes", bytes] = words[..] else {
            return None;
        };
        let seconds = seconds.parse().ok().filter(|seconds: &f64| *seconds > 0.0)?;
        Some(Self { seconds, operations: operations.parse().ok()?, bytes: bytes.parse().ok()? })
    }

    pub(crate) fn apply(self, sample: &mut crate::Sample) {
        (sample.seconds, sample.operations, sample.bytes) =
            (self.seconds, self.operations, self.bytes);
    }
}

pub fn exported(files: u64) -> Vec<PlannedCase> {
    vec![PlannedCase::new(
        "audit",
        "Time, by NFS",
        "create, append, remove",
        Case::Changes { files, depth: DEPTH },
    )]
}

const DEPTH: u32 = 16;
/// 64 MiB an array: far more than the caches hold.
const ARRAY_LEN: usize = 8 << 20;
/// Below one half, so that the numbers stay finite.
const SCALAR: f64 = 0.4;

pub fn work(work: AuditWork, files: u64, directory: &Path) -> io::Result<()> {
    match work {
        AuditWork::Memory => {
            let (seconds, bytes) = memory(ARRAY_LEN, files / 5_000 + 1)?;
            writeln!(
                io::stdout(),
                "seconds {seconds:.9} operations {} bytes {bytes}",
                files / 5_000 + 1
            )
        }
        AuditWork::Files => create_and_remove(files, directory),
        AuditWork::SystemCalls => calls(files, directory),
        AuditWork::Hybrid => {
            let mut seed = 1;
            for part in 0..10 {
                (0..2_000_000u64).for_each(|_| seed = crate::content::mix(seed));
                let directory = directory.join(format!("part-{part}"));
                fs::create_dir(&directory)?;
                create_and_remove(files / 20, &directory)?;
                calls(files / 100, &directory)?;
                fs::remove_dir_all(&directory)?;
            }
            if seed == 0 { Err(io::Error::other("the computation ended in zero")) } else { Ok(()) }
        }
        _ => Err(io::Error::other("the MPI program does this work")),
    }
}

/// Returns seconds, and bytes as STREAM counts them. Checks the result.
fn memory(len: usize, turns: u64) -> io::Result<(f64, u64)> {
    let (mut a, mut b, mut c) = (vec![1.0f64; len], vec![2.0f64; len], vec![0.0f64; len]);
    let (mut x, mut y, mut z) = (1.0f64, 2.0f64, 0.0f64);
    let begun = Instant::now();
    for _ in 0..turns {
        c.copy_from_slice(black_box(&a));
        b.iter_mut().zip(black_box(&c)).for_each(|(b, c)| *b = SCALAR * c);
        c.iter_mut().zip(&a).zip(black_box(&b)).for_each(|((c, a), b)| *c = a + b);
        a.iter_mut().zip(&b).zip(black_box(&c)).for_each(|((a, b), c)| *a = b + SCALAR * c);
        z = x;
        y = SCALAR * z;
        z = x + y;
        x = y + SCALAR * z;
    }
    let seconds = begun.elapsed().as_secs_f64();
    match [&a, &b, &c]
        .into_iter()
        .zip([x, y, z])
        .all(|(array, wanted)| array.iter().all(|got| got == &wanted))
    {
        // Copy and scale move two arrays each, addition and triad three.
        true => Ok((seconds, turns * 10 * 8 * len as u64)),
        false => Err(io::Error::other("memory returns other numbers than were written")),
    }
}

fn create_and_remove(files: u64, directory: &Path) -> io::Result<()> {
    let path = |number| directory.join(format!("file{number}"));
    (0..files).try_for_each(|number| fs::write(path(number), b"a line\n"))?;
    (0..files).try_for_each(|number| {
        fs::File::options().append(true).open(path(number))?.write_all(b"and another\n")
    })?;
    (0..files).try_for_each(|number| fs::remove_file(path(number)))
}

fn calls(files: u64, directory: &Path) -> io::Result<()> {
    let path = directory.join("file");
    fs::write(&path, b"")?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for number in 0..files {
        fs::set_permissions(
            &path,
            fs::Permissions::from_mode(if number % 2 == 0 { 0o600 } else { 0o644 }),
        )?;
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
        for kind in [AuditWork::Files, AuditWork::SystemCalls, AuditWork::Hybrid] {
            let directory = tempfile::tempdir().expect("a directory");
            work(kind, 100, directory.path()).expect("ordinary files");
            assert_eq!(
                fs::read_dir(directory.path()).expect("the file exists").count(),
                0,
                "{kind:?}"
            );
        }
        assert!(AuditWork::ALL.into_iter().all(|kind| AuditWork::named(kind.name()) == Some(kind)));
    }

    #[test]
    fn memory_counts_what_its_kernels_move() {
        let (seconds, bytes) = memory(1000, 3).expect("working memory");
        assert_eq!(bytes, 3 * 80_000);
        let text = format!("seconds {seconds} operations 3 bytes {bytes}\n");
        assert_eq!(WorkReport::parse(&text), Some(WorkReport { seconds, operations: 3, bytes }));
        assert_eq!(WorkReport::parse("seconds 0 operations 3 bytes 1"), None);
        assert_eq!(WorkReport::parse(""), None);
    }
}
