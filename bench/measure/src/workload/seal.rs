//! On one core: each encryption type and kernel, by batch and message size, beside OpenSSL.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vouch_krb5_seal::{
    ContextKeys, Enctype, Kernels, MicJob, OpenJob, Role, SealJob, mic_many_with, open_many_with,
    seal_many_with,
};

use crate::case::Metric;
use crate::record::CaseResult;
use crate::runner::Runner;
use crate::subject::SubjectInfo;
use crate::{Error, Sample, cpu};

#[derive(Debug, Clone)]
pub struct Seal {
    pub enctypes: Vec<String>,
    pub counts: Vec<usize>,
    pub lens: Vec<usize>,
    pub time: Duration,
    /// Measure OpenSSL in every round. Otherwise each algorithm and length is measured once, and all
    /// rounds and encryption types share the sample.
    pub repeats_openssl: bool,
    pub ipsec_mb: Option<PathBuf>,
}

impl Seal {
    pub fn all() -> Vec<String> {
        Enctype::ALL.iter().map(|enctype| enctype.name().to_owned()).collect()
    }

    pub fn full() -> Self {
        let (counts, lens) =
            (vec![1, 2, 4, 8, 16, 32, 64], vec![256, 4096, 16_384, 65_536, 1 << 20]);
        Self {
            enctypes: Self::all(),
            counts,
            lens,
            time: Duration::from_millis(30),
            repeats_openssl: true,
            ipsec_mb: None,
        }
    }

    /// Less than a minute, half of it for OpenSSL's program, which counts whole seconds.
    pub fn standard() -> Self {
        Self { lens: vec![256, 4096, 65_536], time: Duration::from_millis(5), ..Self::quick() }
    }

    pub fn quick() -> Self {
        Self {
            counts: vec![1, 16],
            lens: vec![4096, 65_536],
            time: Duration::from_millis(8),
            repeats_openssl: false,
            ..Self::full()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Seal,
    Open,
    Mic,
}

pub fn seal(runner: &mut Runner, options: &Seal) -> Result<(), Error> {
    let has_openssl = is_openssl_installed();
    let subjects = add_subjects(runner, has_openssl, options.ipsec_mb.is_some());
    // OpenSSL's speed depends only on the length: measured once for all batch sizes.
    let mut plan = Vec::new();
    for enctype in Enctype::ALL
        .into_iter()
        .filter(|enctype| options.enctypes.iter().any(|name| name == enctype.name()))
    {
        for (work, verb) in [(Work::Seal, "seal"), (Work::Open, "open"), (Work::Mic, "MIC")] {
            plan.extend(options.lens.iter().map(|&len| (enctype, work, verb, len)));
        }
    }
    let total = plan.len();
    let mut outcome = Ok(());
    let mut openssl = OpenSsl { repeats: options.repeats_openssl, speeds: HashMap::new() };
    for (at, (enctype, work, verb, len)) in plan.into_iter().enumerate() {
        let counts: Vec<usize> =
            options.counts.iter().copied().filter(|count| count * len <= BATCH_LEN_MAX).collect();
        let place = |count: usize| {
            (
                format!("{verb}, {}, {count} together", enctype.name()),
                crate::byte_units::size(len as u64),
            )
        };
        if runner.take_earlier_results(
            "seal",
            &counts.iter().map(|&count| place(count)).collect::<Vec<_>>(),
        ) {
            continue;
        }
        let show = |runner: &mut Runner, what: &str| {
            runner.show_progress(
                at as f64 / total as f64,
                &format!("{verb}, {}, {len} bytes, {what}", enctype.name()),
            )
        };
        let measure_batch = |runner: &mut Runner, count: usize, label: &str| {
            if let Some(program) = options.ipsec_mb.as_deref().filter(|_| label == IPSEC_MB) {
                return ipsec_mb(program, enctype, work, count, len, options.time);
            }
            let kernels = Kernels::available().iter().find(|kernels| kernels.name() == label)?;
            show(runner, &format!("{count} together, {label}"));
            Some(measure(kernels, enctype, work, count, len, options.time))
        };
        let ask = has_openssl && work != Work::Mic;
        let mut group = Group::new(&subjects, &counts);
        outcome = group.measure(runner, &mut |runner, what| match what {
            Figure::OpenSsl if ask => {
                show(runner, OPENSSL);
                openssl.sample(enctype, work == Work::Seal, len)
            }
            Figure::OpenSsl => None,
            Figure::Kernels { count, label } => measure_batch(runner, count, label),
        });
        if outcome.is_err() {
            break;
        }
        for (count, samples) in group.counts {
            let (panel, name) = place(count);
            let mut result = CaseResult {
                x: Some(len as f64),
                ..CaseResult::new("seal", panel, name, Metric::BytesPerSecond)
            };
            result.sum_up(runner.run.baseline(), samples);
            if !result.subjects.is_empty() {
                runner.run.results.push(result);
                runner.show_finished((at + 1) as f64 / total as f64);
            }
        }
    }
    outcome
}

fn is_openssl_installed() -> bool {
    Command::new("openssl")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn add_subjects(runner: &mut Runner, has_openssl: bool, has_ipsec_mb: bool) -> Vec<SubjectInfo> {
    let about = |label: &str, details: String| SubjectInfo {
        label: label.into(),
        target: "this processor, one core".into(),
        sec: None,
        details: vec![details],
    };
    let mut subjects = Vec::new();
    if has_openssl {
        runner.run.machine.with_version("openssl", "version");
        subjects.push(about(
            OPENSSL,
            "openssl speed: AES-CBC, then HMAC; seconds a byte added up".into(),
        ));
    } else {
        runner.skip("OpenSSL: openssl is not installed".into());
    }
    subjects.extend(
        Kernels::available()
            .iter()
            .map(|kernels| about(kernels.name(), kernels.describe().to_string())),
    );
    if has_ipsec_mb {
        subjects.push(about(IPSEC_MB, "cipher and hash of the same bytes, without tokens".into()));
    }
    runner.run.subjects.extend(subjects.iter().cloned());
    subjects
}

enum Figure<'a> {
    OpenSsl,
    Kernels { count: usize, label: &'a str },
}

struct Group {
    counts: Vec<(usize, OfSubjects)>,
}

type OfSubjects = Vec<(String, Vec<Sample>)>;

impl Group {
    fn new(subjects: &[SubjectInfo], counts: &[usize]) -> Self {
        let empty = || subjects.iter().map(|about| (about.label.clone(), Vec::new())).collect();
        Self { counts: counts.iter().map(|count| (*count, empty())).collect() }
    }

    /// OpenSSL once, then each batch size on all kernels. The warm-up round leaves the slow OpenSSL
    /// out.
    fn measure(
        &mut self,
        runner: &mut Runner,
        measure: &mut dyn FnMut(&mut Runner, Figure<'_>) -> Option<Sample>,
    ) -> Result<(), Error> {
        let passes = runner.rounds.max + usize::from(runner.rounds.warm_up);
        for pass in 0..passes {
            let warm_up = runner.rounds.warm_up && pass == 0;
            let peer = if warm_up { None } else { measure(runner, Figure::OpenSsl) };
            for (count, samples) in &mut self.counts {
                for (label, samples) in samples {
                    if runner.stop.is_set() {
                        return Err(Error::Interrupted);
                    }
                    let sample = if label == OPENSSL {
                        peer.clone()
                    } else {
                        measure(runner, Figure::Kernels { count: *count, label })
                    };
                    samples.extend(sample.filter(|_| !warm_up));
                }
            }
            let all = || self.counts.iter().flat_map(|(_, samples)| samples);
            let tight = all().all(|(_, samples)| {
                runner.rounds.are_precise(samples, Metric::BytesPerSecond, None)
            });
            if pass + usize::from(!runner.rounds.warm_up) >= runner.rounds.min && tight {
                break;
            }
        }
        Ok(())
    }
}

/// Counts CPU time, because other processes disturb it least.
fn measure(
    kernels: &Kernels,
    enctype: Enctype,
    work: Work,
    count: usize,
    len: usize,
    time: Duration,
) -> Sample {
    let keys = |role| {
        ContextKeys::new(enctype, &vec![7; enctype.key_len()], role, true)
            .expect("a key of the enctype's own length")
    };
    let (initiator, acceptor) = (keys(Role::Initiator), keys(Role::Acceptor));
    let whole = 32 + len + initiator.trailer_len();
    // Bodies apart by a page would share sets of the cache.
    let mut buffers: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; whole + 4160]).collect();
    let seal_all = |buffers: &mut Vec<Vec<u8>>, passes: u64| {
        let mut jobs: Vec<SealJob<'_>> = buffers
            .iter_mut()
            .map(|buffer| SealJob::new(&initiator, 1, [7; 16], &mut buffer[..whole]))
            .collect();
        timed(passes, || seal_many_with(kernels, black_box(&mut jobs)))
    };
    seal_all(&mut buffers, 1);
    let sealed: Vec<Vec<u8>> = buffers.iter().map(|buffer| buffer[..whole].to_vec()).collect();
    // Opening overwrites a message, so each pass has its own buffers.
    let mut again: Vec<Vec<u8>> = Vec::new();
    let mut pass = |passes: u64| match work {
        Work::Seal => seal_all(&mut buffers, passes),
        Work::Open => {
            again.resize_with(passes as usize * count, || vec![0; whole + 4160]);
            again
                .iter_mut()
                .zip(sealed.iter().cycle())
                .for_each(|(buffer, sealed)| buffer[..whole].copy_from_slice(sealed));
            let mut jobs: Vec<OpenJob<'_>> = again
                .iter_mut()
                .map(|buffer| OpenJob::new(&acceptor, &mut buffer[..whole]))
                .collect();
            let mut batches = jobs.chunks_mut(count);
            let spent = timed(passes, || {
                open_many_with(
                    kernels,
                    black_box(batches.next().expect("one request for each pass")),
                )
            });
            assert!(jobs.iter().all(|job| job.result.is_ok()), "a token that we sealed opens");
            spent
        }
        Work::Mic => {
            let parts: Vec<[&[u8]; 1]> = buffers.iter().map(|buffer| [&buffer[..len]]).collect();
            let mut jobs: Vec<MicJob<'_>> =
                parts.iter().map(|parts| MicJob::new(&initiator, 1, parts)).collect();
            timed(passes, || mic_many_with(kernels, black_box(&mut jobs)))
        }
    };
    let batch_max =
        if work == Work::Open { (OPEN_LEN_MAX / (count * whole) as u64).max(1) } else { u64::MAX };
    let (passes, spent) = batches(time, batch_max, &mut pass);
    let (operations, bytes) = (passes * count as u64, passes * (count * len) as u64);
    Sample {
        seconds: spent.max(1e-9),
        bytes,
        operations,
        client_cpu_s: Some(spent),
        ..Sample::default()
    }
}

/// Batches are long compared with a read of the clock.
fn batches(time: Duration, batch_max: u64, pass: &mut dyn FnMut(u64) -> f64) -> (u64, f64) {
    let (mut together, mut passes, mut spent) = (1, 0, 0.0);
    let started = Instant::now();
    while passes < 2 || started.elapsed() < time {
        let took = pass(together);
        if took < BATCH_S && together < batch_max {
            (together, passes, spent) = ((2 * together).min(batch_max), 0, 0.0);
            continue;
        }
        passes += together;
        spent += took;
    }
    (passes, spent)
}

fn timed(passes: u64, mut pass: impl FnMut()) -> f64 {
    let start = cpu::thread_s();
    (0..passes).for_each(|_| pass());
    cpu::thread_s() - start
}

struct OpenSsl {
    repeats: bool,
    /// Bytes per second of an algorithm at a length.
    speeds: HashMap<(&'static str, bool, usize), Option<f64>>,
}

impl OpenSsl {
    fn sample(&mut self, enctype: Enctype, encrypts: bool, len: usize) -> Option<Sample> {
        let (cipher, hash) = match enctype {
            Enctype::Aes128CtsHmacSha1_96 => ("aes-128-cbc", "sha1"),
            Enctype::Aes256CtsHmacSha1_96 => ("aes-256-cbc", "sha1"),
            Enctype::Aes128CtsHmacSha256_128 => ("aes-128-cbc", "sha256"),
            Enctype::Aes256CtsHmacSha384_192 => ("aes-256-cbc", "sha384"),
        };
        let seconds = len as f64 / self.speed(cipher, encrypts, len)?
            + len as f64 / self.speed(hash, true, len)?;
        Some(Sample {
            seconds,
            bytes: len as u64,
            operations: 1,
            client_cpu_s: Some(seconds),
            ..Sample::default()
        })
    }

    fn speed(&mut self, algorithm: &'static str, encrypts: bool, len: usize) -> Option<f64> {
        let measured = || measure_openssl(algorithm, encrypts, len);
        if self.repeats {
            measured()
        } else {
            *self.speeds.entry((algorithm, encrypts, len)).or_insert_with(measured)
        }
    }
}

fn measure_openssl(algorithm: &str, encrypts: bool, len: usize) -> Option<f64> {
    let what = if algorithm.starts_with("sha") { "-hmac" } else { "-evp" };
    let output = Command::new("openssl")
        .args(["speed", "-mr", "-seconds", "1", "-bytes", &len.to_string(), what, algorithm])
        .args((!encrypts).then_some("-decrypt"))
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().rev().find(|line| line.starts_with("+F:"))?.rsplit(':').next()?.trim().parse().ok()
}

/// Cipher and hash of libipsec-mb over `count` bodies. None for work that its program lacks.
fn ipsec_mb(
    program: &Path,
    enctype: Enctype,
    work: Work,
    count: usize,
    len: usize,
    time: Duration,
) -> Option<Sample> {
    let verb = match work {
        Work::Seal => "seal",
        Work::Open => "open",
        Work::Mic => return None,
    };
    let numbers = [
        (enctype as i32).to_string(),
        count.to_string(),
        len.to_string(),
        time.as_millis().to_string(),
    ];
    let output = Command::new(program).arg(verb).args(numbers).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rate) = text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .find(|(name, _)| name.contains(IPSEC_MB))?;
    let (bytes, rate) = ((count * len) as u64, rate.trim().parse::<f64>().ok()? * 1e9);
    let seconds = bytes as f64 / rate;
    Some(Sample {
        seconds,
        bytes,
        operations: count as u64,
        client_cpu_s: Some(seconds),
        ..Sample::default()
    })
}

const IPSEC_MB: &str = "libipsec-mb";
const OPENSSL: &str = "openssl";
/// A larger batch would measure memory bandwidth.
const BATCH_LEN_MAX: usize = 8 << 20;
const OPEN_LEN_MAX: u64 = 256 << 10;
/// Two reads of the thread's clock take some hundred nanoseconds.
const BATCH_S: f64 = 100e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::{ProgressSink, Rounds};
    use crate::{Run, StopFlag};

    struct Silent;

    impl ProgressSink for Silent {
        fn update(&mut self, _: f64, _: f64, _: &str) {}
    }

    fn run_and_log(rounds: Rounds, speed: impl Fn(usize) -> u64) -> (Group, Vec<String>) {
        let subject = |label: &str| SubjectInfo {
            label: label.into(),
            target: "x".into(),
            sec: None,
            details: Vec::new(),
        };
        let mut group = Group::new(&[subject(OPENSSL), subject("plain")], &[1, 16]);
        let mut runner = Runner::new(
            Run::begin("test".into(), true),
            Vec::new(),
            rounds,
            Box::new(Silent),
            StopFlag::default(),
        );
        let mut log = Vec::new();
        let mut ask = |_: &mut Runner, what: Figure<'_>| {
            log.push(match what {
                Figure::OpenSsl => OPENSSL.to_owned(),
                Figure::Kernels { count, label } => format!("{label} {count}"),
            });
            Some(Sample {
                seconds: 1.0,
                bytes: speed(log.len()),
                operations: 1,
                ..Sample::default()
            })
        };
        group.measure(&mut runner, &mut ask).expect("no stop request");
        (group, log)
    }

    #[test]
    fn openssl_is_measured_once_in_each_counted_round() {
        let (group, log) =
            run_and_log(Rounds { min: 3, max: 3, spread_max: 0.0, warm_up: true }, |turn| {
                1000 + turn as u64
            });
        let round = ["openssl", "plain 1", "plain 16"];
        assert_eq!(log, [&round[1..], &round, &round, &round].concat());
        for (_, samples) in &group.counts {
            assert!(samples.iter().all(|(_, samples)| samples.len() == 3));
        }
        let (_, samples) = &group.counts[0];
        assert_eq!(samples[1].1[2].bytes, samples[0].1[2].bytes + 1);
    }

    #[test]
    fn openssl_is_measured_once_for_equal_algorithms() {
        let known = [("aes-256-cbc", 4e9), ("sha1", 1e9), ("sha384", 2e9)];
        let speeds =
            known.iter().map(|(name, speed)| ((*name, true, 4096), Some(*speed))).collect();
        let mut openssl = OpenSsl { repeats: false, speeds };
        for (enctype, wanted) in
            [(Enctype::Aes256CtsHmacSha1_96, 1.25e-9), (Enctype::Aes256CtsHmacSha384_192, 0.75e-9)]
        {
            let sample = openssl.sample(enctype, true, 4096).expect("all speeds are known");
            assert!((sample.seconds / 4096.0 - wanted).abs() < 1e-15, "{sample:?}");
        }
        assert_eq!(openssl.speeds.len(), 3);
    }

    #[test]
    fn clock_is_read_seldom_for_short_messages() {
        for (pass_s, batch_max, wanted) in
            [(100e-9, u64::MAX, 1024), (100e-9, 64, 64), (1e-3, u64::MAX, 1)]
        {
            let mut passes_run = Vec::new();
            let (passes, spent) = batches(Duration::ZERO, batch_max, &mut |passes| {
                passes_run.push(passes);
                passes as f64 * pass_s
            });
            assert_eq!(passes_run.last(), Some(&wanted), "{passes_run:?}");
            let counted: u64 = passes_run.iter().filter(|passes| **passes == wanted).sum();
            assert_eq!(passes, counted);
            assert!((spent - passes as f64 * pass_s).abs() < 1e-9 && passes >= 2);
        }
    }

    #[test]
    fn stops_when_intervals_are_narrow() {
        let (_, log) =
            run_and_log(Rounds { min: 3, max: 10, spread_max: 0.02, warm_up: false }, |_| 1000);
        assert_eq!(log.len(), 3 * 3);
        let (_, log) =
            run_and_log(Rounds { min: 3, max: 5, spread_max: 0.02, warm_up: false }, |turn| {
                if turn % 2 == 0 { 10 } else { 1000 }
            });
        assert_eq!(log.len(), 5 * 3);
    }
}
