//! Opening published trees of several kinds (Ed25519 keys or pairs with ML-DSA-44, with a log or
//! without): time and CPU of client and replica. `bench/workloads/key_pairs.sh` makes the trees and
//! runs this.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clap::Parser;
use vouch_bench::cpu::ServerCpu;
use vouch_benches::OrExit as _;
use vouch_oncrpc::Call;
use vouch_tree::TreeName;
use vouch_tree::protocol::{GetFsinfoArgs, PROGRAM, Procedure, VERSION};
use vouch_tree_client::{Client, ClientOptions, TreeOptions};
use vouch_xdr::Xdr as _;

/// First calls of a round.
const FIRST_CALLS: usize = 1000;

#[derive(Parser)]
#[command(about = "Measure opening of trees of several kinds beside those of the first kind")]
struct Args {
    /// A kind of trees: label, file of names (one a line, as many as of the other kinds; their HOST
    /// is the replica), process of the replica.
    #[arg(long = "kind", num_args = 3, value_names = ["LABEL", "FILE", "PID"], required = true)]
    kinds: Vec<String>,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

struct Subject {
    label: String,
    names: Vec<TreeName>,
    replica_pid: u32,
    samples: Vec<Sample>,
}

/// Of each opened tree.
struct Sample {
    rate: f64,
    client_us: f64,
    replica_us: f64,
}

fn main() {
    let args = Args::parse();
    let subject = |kind: &[String]| {
        let [label, path, pid] = kind else { unreachable!("clap counts them") };
        let text = std::fs::read_to_string(path).or_exit("read the names");
        let names: Vec<_> = text.lines().map(|line| line.parse().or_exit("read a name")).collect();
        assert!(!names.is_empty(), "a list of names is empty");
        let replica_pid = pid.parse().or_exit("read the process");
        Subject { label: label.clone(), names, replica_pid, samples: Vec::new() }
    };
    let mut subjects: Vec<_> = args.kinds.chunks(3).map(subject).collect();
    measure_first_calls(&subjects, args.rounds);
    // One tree and then a new client: connections. All trees by one client: opening many.
    for per_client in [1, subjects[0].names.len()] {
        for round in 0..=args.rounds {
            for subject in &mut subjects {
                let sample = measure(subject, per_client, args.seconds);
                // The first round fills caches of code and data.
                if round > 0 {
                    subject.samples.push(sample);
                }
            }
        }
        for Subject { label, samples, .. } in &subjects {
            println!(
                "{label:8} {per_client:4} trees a client: {:6.0} trees/s, client CPU {:6.0} us, replica CPU {:5.0} us",
                median(samples.iter().map(|sample| sample.rate)),
                median(samples.iter().map(|sample| sample.client_us)),
                median(samples.iter().map(|sample| sample.replica_us)),
            );
        }
        for subject in &subjects[1..] {
            let ratio = |value: fn(&Sample) -> f64| {
                let pairs = subjects[0].samples.iter().zip(&subject.samples);
                median(pairs.map(|(first, other)| value(other) / value(first)))
            };
            println!(
                "{} / {}, {per_client:4} trees a client: client CPU {:.2}, replica CPU {:.2}, trees/s {:.2}",
                subject.label,
                subjects[0].label,
                ratio(|sample| sample.client_us),
                ratio(|sample| sample.replica_us),
                ratio(|sample| sample.rate),
            );
        }
        subjects.iter_mut().for_each(|subject| subject.samples.clear());
    }
}

/// The replica alone: as many connections with the first call for each kind, by a client that
/// verifies nothing. A slow client would let the replica's work between calls count too.
fn measure_first_calls(subjects: &[Subject], rounds: usize) {
    let mut all = vec![Vec::new(); subjects.len()];
    for round in 0..=rounds {
        for (subject, samples) in subjects.iter().zip(&mut all) {
            let sample = first_calls(subject);
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    for (subject, samples) in subjects.iter().zip(&all) {
        let ratios = samples.iter().zip(&all[0]).map(|((us, _), (first_us, _))| us / first_us);
        println!(
            "{:8} first calls: replica CPU {:5.1} us, ratio {:.2}, {} bytes",
            subject.label,
            median(samples.iter().map(|(us, _)| *us)),
            median(ratios),
            samples[0].1,
        );
    }
}

/// The replica's CPU for each call, in µs, and the bytes of the last reply.
fn first_calls(subject: &Subject) -> (f64, u64) {
    let seconds = || ServerCpu::Process(subject.replica_pid).seconds().or_exit("read CPU time");
    let (before, mut reply_len) = (seconds(), 0);
    for name in subject.names.iter().cycle().take(FIRST_CALLS) {
        let args = GetFsinfoArgs { hostid: *name.hostid(), companions: true }.to_xdr();
        let call = Call::new(1, (PROGRAM, VERSION), Procedure::GetFsinfo as u32, &args);
        let request = vouch_oncrpc::record(|w| call.encode(w));
        let mut stream = TcpStream::connect((name.host(), name.port())).or_exit("connect");
        stream.write_all(&request).or_exit("send a call");
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).or_exit("read a reply");
        // The reply is one fragment (RFC 5531 §11).
        reply_len = u64::from(u32::from_be_bytes(mark) & 0x7fff_ffff);
        std::io::copy(&mut stream.take(reply_len), &mut std::io::sink()).or_exit("read a reply");
    }
    ((seconds() - before) * 1e6 / FIRST_CALLS as f64, reply_len + 4)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(subject: &Subject, per_client: usize, seconds_min: f64) -> Sample {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_exit("start a runtime");
    let seconds = |pid: u32| ServerCpu::Process(pid).seconds().or_exit("read CPU time");
    let seconds = || [seconds(std::process::id()), seconds(subject.replica_pid)];
    let (before, began, mut opened) = (seconds(), Instant::now(), 0);
    while began.elapsed() < Duration::from_secs_f64(seconds_min) {
        let first = opened % subject.names.len();
        let names = subject.names.iter().cycle().skip(first).take(per_client);
        runtime.block_on(async {
            let client = Client::new(ClientOptions::default()).or_exit("start a client");
            for name in names {
                client.open(name, &TreeOptions::default()).await.or_exit("open a tree");
            }
        });
        opened += per_client;
    }
    let after = seconds();
    let each_us = 1e6 / opened as f64;
    Sample {
        rate: opened as f64 / began.elapsed().as_secs_f64(),
        client_us: (after[0] - before[0]) * each_us,
        replica_us: (after[1] - before[1]) * each_us,
    }
}
