//! Message protection on one core: sealing, opening and MIC tokens of every enctype, many messages
//! at once and one alone, with every set of kernels that the CPU has, against OpenSSL in two passes
//! and libipsec-mb (`benches/seal_peers.c`, built by hand), in turn, round by round.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;
use vouch_benches::{OrStop as _, machine, median};
use vouch_krb5_seal::{ContextKeys, Enctype, Kernels, MicJob, OpenJob, Role, SealJob, mic_many_with, open_many_with, seal_many_with};

#[derive(Parser)]
#[command(about = "GB/s of Kerberos message protection on one core, kernel by kernel, beside OpenSSL and libipsec-mb")]
struct Args {
    /// The peers' program: cc -O2 -o seal_peers benches/seal_peers.c -lcrypto -lIPSec_MB
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Rounds; each measures every case once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds a case and round.
    #[arg(long, default_value_t = 40)]
    milliseconds: u64,
    /// Only sets of kernels with this name, and the best.
    #[arg(long)]
    kernels: Option<String>,
    /// Only cases whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// Every message under another key.
    #[arg(long)]
    many_keys: bool,
}

/// What is measured: how many messages of how many bytes.
const SHAPES: [(usize, usize); 12] = [
    (1, 1 << 20),
    (1, 65_536),
    (1, 4096),
    (1, 160),
    (1, 256),
    (16, 160),
    (2, 65_536),
    (4, 65_536),
    (8, 65_536),
    (16, 65_536),
    (16, 4096),
    (32, 32_768),
];

/// Bytes that are worked on between two looks at the clock, at least.
const CLOCKED_LEN: usize = 1 << 15;

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Seal,
    Open,
    Mic,
}

fn main() {
    let args = Args::parse();
    println!("seal: message protection on one core, GB of bodies (10^9 bytes) a second of CPU");
    println!("machine: {}", machine());
    for kernels in Kernels::available() {
        println!("kernels {}: {}", kernels.name(), kernels.describe());
    }
    let best = Kernels::best();
    let sets: Vec<&Kernels> = Kernels::available()
        .iter()
        .filter(|kernels| kernels.name() == best.name() || args.kernels.as_deref().is_none_or(|name| name == kernels.name()))
        .collect();
    let mut figures: BTreeMap<(usize, String), Vec<f64>> = BTreeMap::new();
    for _ in 0..args.rounds {
        let mut order = 0;
        for enctype in [Enctype::Aes256CtsHmacSha1_96, Enctype::Aes256CtsHmacSha384_192, Enctype::Aes128CtsHmacSha256_128] {
            for (count, len) in SHAPES {
                for (work, verb) in [(Work::Seal, "seal"), (Work::Open, "open"), (Work::Mic, "mic")] {
                    let case = format!("{verb} {} {count} x {len}", enctype.name());
                    if !case.contains(&args.only) {
                        continue;
                    }
                    for kernels in &sets {
                        let figure = measure(kernels, enctype, work, count, len, &args);
                        figures.entry((order, format!("{case}: {}", kernels.name()))).or_default().push(figure);
                        order += 1;
                    }
                    for (name, figure) in peers(&args, enctype, work, count, len) {
                        figures.entry((order, format!("{case}: {name}"))).or_default().push(figure);
                        order += 1;
                    }
                }
            }
        }
    }
    println!("\nmedians of {} rounds", args.rounds);
    for ((_, name), values) in figures {
        println!("{:8.2}  {name}", median(values));
    }
}

/// GB/s of bodies.
fn measure(kernels: &Kernels, enctype: Enctype, work: Work, count: usize, len: usize, args: &Args) -> f64 {
    let keys = |role| -> Vec<ContextKeys> {
        let one = |seed: usize| ContextKeys::new(enctype, &vec![seed as u8; enctype.key_len()], role, true).or_stop("keys");
        (0..if args.many_keys { count } else { 1 }).map(one).collect()
    };
    let (initiators, acceptors) = (keys(Role::Initiator), keys(Role::Acceptor));
    let whole = 32 + len + initiators[0].trailer_len();
    // Bodies apart by a page and some: neighbours of one length would fall on the same sets of the
    // cache. So many sets of them for one look at the clock, which costs as much as a short message
    // does.
    let sets = (CLOCKED_LEN / (count * len)).max(1);
    let mut buffers: Vec<Vec<u8>> = (0..sets * count).map(|at| vec![at as u8; whole + 4160]).collect();
    let sealed: Vec<Vec<u8>> = {
        let mut jobs: Vec<SealJob> = buffers
            .iter_mut()
            .enumerate()
            .map(|(at, buffer)| SealJob::new(&initiators[at % initiators.len()], 1, [7; 16], &mut buffer[..whole]))
            .collect();
        seal_many_with(kernels, &mut jobs);
        jobs.iter().map(|job| job.token.to_vec()).collect()
    };
    let started = Instant::now();
    let mut spent = Duration::ZERO;
    let mut passes = 0u32;
    while passes < 2 || started.elapsed() < Duration::from_millis(args.milliseconds) {
        match work {
            Work::Seal => {
                let mut jobs: Vec<SealJob> = buffers
                    .iter_mut()
                    .enumerate()
                    .map(|(at, buffer)| SealJob::new(&initiators[at % initiators.len()], 1, [7; 16], &mut buffer[..whole]))
                    .collect();
                let start = cpu_time();
                jobs.chunks_mut(count).for_each(|jobs| seal_many_with(kernels, black_box(jobs)));
                spent += cpu_time() - start;
            }
            Work::Open => {
                // What is opened is there no longer, so it is put back each time; that is not counted.
                for (buffer, sealed) in buffers.iter_mut().zip(&sealed) {
                    buffer[..whole].copy_from_slice(sealed);
                }
                let mut jobs: Vec<OpenJob> = buffers
                    .iter_mut()
                    .enumerate()
                    .map(|(at, buffer)| OpenJob::new(&acceptors[at % acceptors.len()], &mut buffer[..whole]))
                    .collect();
                let start = cpu_time();
                jobs.chunks_mut(count).for_each(|jobs| open_many_with(kernels, black_box(jobs)));
                spent += cpu_time() - start;
                assert!(jobs.iter().all(|job| job.result.is_ok()), "a token that we sealed opens");
            }
            Work::Mic => {
                let parts: Vec<[&[u8]; 1]> = buffers.iter().map(|buffer| [&buffer[..len]]).collect();
                let mut jobs: Vec<MicJob> =
                    parts.iter().enumerate().map(|(at, parts)| MicJob::new(&initiators[at % initiators.len()], 1, parts)).collect();
                let start = cpu_time();
                jobs.chunks_mut(count).for_each(|jobs| mic_many_with(kernels, black_box(jobs)));
                spent += cpu_time() - start;
            }
        }
        passes += 1;
    }
    f64::from(passes) * (sets * count * len) as f64 / spent.as_secs_f64() / 1e9
}

/// CPU time of this thread: what others do on the machine disturbs it least.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The peers' figures for the same work: cipher and hash of the same bytes, without tokens.
fn peers(args: &Args, enctype: Enctype, work: Work, count: usize, len: usize) -> Vec<(String, f64)> {
    let Some(program) = &args.peers else { return Vec::new() };
    if work == Work::Mic {
        return Vec::new();
    }
    let verb = if work == Work::Seal { "seal" } else { "open" };
    let output = Command::new(program)
        .args([verb, &(enctype as i32).to_string(), &count.to_string(), &len.to_string(), &args.milliseconds.to_string()])
        .output()
        .or_stop("the peers' program");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once('\t').and_then(|(name, figure)| Some((name.to_owned(), figure.trim().parse().ok()?))))
        .collect()
}
