//! Kerberos message protection on one core: each enctype, each set of kernels that this processor has, one to many messages together, by
//! size; beside OpenSSL's cipher and hash, one pass after the other, measured in the same run.

use std::collections::HashMap;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vouch_krb5_seal::{ContextKeys, Enctype, Kernels, MicJob, OpenJob, Role, SealJob, mic_many_with, open_many_with, seal_many_with};

use crate::case::Metric;
use crate::pairs::Bench;
use crate::record::CaseResult;
use crate::subject::About;
use crate::{Error, Sample, cpu};

/// How.
#[derive(Debug, Clone)]
pub struct Seal {
    /// Names of the encryption types.
    pub enctypes: Vec<String>,
    /// Messages together.
    pub counts: Vec<usize>,
    /// Bytes of each.
    pub lens: Vec<usize>,
    /// How long each kernel works a round.
    pub time: Duration,
    /// Whether OpenSSL is asked in every round, which takes its time: a second for each figure.
    pub openssl_each_round: bool,
}

impl Seal {
    /// Names of all encryption types.
    pub fn all() -> Vec<String> {
        Enctype::ALL.iter().map(|enctype| enctype.name().to_owned()).collect()
    }

    /// As a run is done that is to be believed.
    pub fn full() -> Self {
        let (counts, lens) = (vec![1, 2, 4, 8, 16, 32, 64], vec![256, 4096, 16_384, 65_536, 1 << 20]);
        Self { enctypes: Self::all(), counts, lens, time: Duration::from_millis(30), openssl_each_round: true }
    }

    /// A first look.
    pub fn quick() -> Self {
        Self { counts: vec![1, 16], lens: vec![4096, 65_536], time: Duration::from_millis(8), openssl_each_round: false, ..Self::full() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Seal,
    Open,
    Mic,
}

/// Measures all of it.
pub fn seal(bench: &mut Bench, how: &Seal) -> Result<(), Error> {
    let has_openssl =
        Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    let about = |label: &str, details: String| About {
        label: label.into(),
        target: "this processor, one core".into(),
        sec: None,
        details: vec![details],
    };
    let mut subjects = Vec::new();
    if has_openssl {
        bench.run.machine.with_version("openssl", "version");
        subjects.push(about(OPENSSL, "openssl speed: AES-CBC, then HMAC; seconds a byte added up".into()));
    } else {
        bench.leave_out("openssl is not installed: its figures".into());
    }
    subjects.extend(Kernels::available().iter().map(|kernels| about(kernels.name(), kernels.describe().to_string())));
    bench.run.subjects.extend(subjects.iter().cloned());
    let mut plan = Vec::new();
    for enctype in Enctype::ALL.into_iter().filter(|enctype| how.enctypes.iter().any(|name| name == enctype.name())) {
        for (work, verb) in [(Work::Seal, "seal"), (Work::Open, "open"), (Work::Mic, "MIC")] {
            for &count in &how.counts {
                plan.extend(how.lens.iter().filter(|len| count * **len <= TOGETHER_LEN_MAX).map(|&len| (enctype, work, verb, count, len)));
            }
        }
    }
    let mut speeds = Speeds::new();
    let (rounds, total) = (bench.rounds.most, plan.len());
    for (at, (enctype, work, verb, count, len)) in plan.into_iter().enumerate() {
        let panel = format!("{verb}, {}, {count} together", enctype.name());
        let mut samples: Vec<(String, Vec<Sample>)> = subjects.iter().map(|about| (about.label.clone(), Vec::new())).collect();
        for round in 0..rounds {
            for (label, samples) in &mut samples {
                if bench.stop.asked() {
                    return Err(Error::Interrupted);
                }
                bench.show(at as f64 / total as f64, &format!("{panel}, {len} bytes, {label}"));
                match Kernels::available().iter().find(|kernels| kernels.name() == label) {
                    Some(kernels) => samples.push(measure(kernels, enctype, work, count, len, how.time)),
                    None if work != Work::Mic && (round == 0 || how.openssl_each_round) => {
                        samples.extend(openssl(&mut speeds, round, enctype, work == Work::Seal, len));
                    }
                    None => {}
                }
            }
        }
        let (workload, name) = ("seal".into(), crate::plan::size(len as u64));
        let mut result =
            CaseResult { workload, panel, name, x: Some(len as f64), metric: Metric::BytesPerSecond, case: None, subjects: Vec::new() };
        result.sum_up(bench.run.baseline(), samples);
        bench.run.results.push(result);
    }
    Ok(())
}

/// Messages for some time, by the CPU's clock: what others do on the machine disturbs that least.
fn measure(kernels: &Kernels, enctype: Enctype, work: Work, count: usize, len: usize, time: Duration) -> Sample {
    let keys = |role| ContextKeys::new(enctype, &vec![7; enctype.key_len()], role, true).expect("a key of the enctype's own length");
    let (initiator, acceptor) = (keys(Role::Initiator), keys(Role::Acceptor));
    let whole = 32 + len + initiator.trailer_len();
    // Bodies apart by a page and some: neighbours of one length would fall on the same sets of the cache.
    let mut buffers: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; whole + 4160]).collect();
    let seal_all = |buffers: &mut Vec<Vec<u8>>| {
        let mut jobs: Vec<SealJob<'_>> =
            buffers.iter_mut().map(|buffer| SealJob::new(&initiator, 1, [7; 16], &mut buffer[..whole])).collect();
        let start = cpu::thread_s();
        seal_many_with(kernels, black_box(&mut jobs));
        cpu::thread_s() - start
    };
    seal_all(&mut buffers);
    let sealed: Vec<Vec<u8>> = buffers.iter().map(|buffer| buffer[..whole].to_vec()).collect();
    let (started, mut spent, mut passes) = (Instant::now(), 0.0, 0u64);
    while passes < 2 || started.elapsed() < time {
        spent += match work {
            Work::Seal => seal_all(&mut buffers),
            Work::Open => {
                // What is opened is there no longer, so it is put back each time; that is not counted.
                buffers.iter_mut().zip(&sealed).for_each(|(buffer, sealed)| buffer[..whole].copy_from_slice(sealed));
                let mut jobs: Vec<OpenJob<'_>> = buffers.iter_mut().map(|buffer| OpenJob::new(&acceptor, &mut buffer[..whole])).collect();
                let start = cpu::thread_s();
                open_many_with(kernels, black_box(&mut jobs));
                let spent = cpu::thread_s() - start;
                assert!(jobs.iter().all(|job| job.result.is_ok()), "a token that we sealed opens");
                spent
            }
            Work::Mic => {
                let parts: Vec<[&[u8]; 1]> = buffers.iter().map(|buffer| [&buffer[..len]]).collect();
                let mut jobs: Vec<MicJob<'_>> = parts.iter().map(|parts| MicJob::new(&initiator, 1, parts)).collect();
                let start = cpu::thread_s();
                mic_many_with(kernels, black_box(&mut jobs));
                cpu::thread_s() - start
            }
        };
        passes += 1;
    }
    let (operations, bytes) = (passes * count as u64, passes * (count * len) as u64);
    Sample { seconds: spent.max(1e-9), bytes, operations, client_cpu_s: Some(spent), ..Sample::default() }
}

/// What OpenSSL has said in each round, so that it is asked once.
type Speeds = HashMap<(usize, String, usize), Option<f64>>;

/// OpenSSL's cipher, then its hash, over a body of this length.
fn openssl(speeds: &mut Speeds, round: usize, enctype: Enctype, encrypts: bool, len: usize) -> Option<Sample> {
    let (cipher, hash) = match enctype {
        Enctype::Aes128CtsHmacSha1_96 => ("aes-128-cbc", "sha1"),
        Enctype::Aes256CtsHmacSha1_96 => ("aes-256-cbc", "sha1"),
        Enctype::Aes128CtsHmacSha256_128 => ("aes-128-cbc", "sha256"),
        Enctype::Aes256CtsHmacSha384_192 => ("aes-256-cbc", "sha384"),
    };
    let mut ask = |what: &[&str]| *speeds.entry((round, what.join(" "), len)).or_insert_with(|| speed(what, len));
    let cipher = if encrypts { ask(&["-evp", cipher]) } else { ask(&["-evp", cipher, "-decrypt"]) }?;
    let seconds = len as f64 / cipher + len as f64 / ask(&["-hmac", hash])?;
    Some(Sample { seconds, bytes: len as u64, operations: 1, client_cpu_s: Some(seconds), ..Sample::default() })
}

/// Bytes a second, from `openssl speed`.
fn speed(what: &[&str], len: usize) -> Option<f64> {
    let output = Command::new("openssl")
        .args(["speed", "-mr", "-seconds", "1", "-bytes", &len.to_string()])
        .args(what)
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().rev().find(|line| line.starts_with("+F:"))?.rsplit(':').next()?.trim().parse().ok()
}

const OPENSSL: &str = "openssl";
/// More would be memory's speed, not the processor's.
const TOGETHER_LEN_MAX: usize = 8 << 20;
