//! Opening published trees of Ed25519 keys beside trees of key pairs (Ed25519 and ML-DSA-44): time
//! and CPU of client and replica. `bench/workloads/key_pairs.sh` makes the trees and runs this.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use vouch_bench::cpu::ServerCpu;
use vouch_benches::OrExit as _;
use vouch_tree::TreeName;
use vouch_tree_client::{Client, ClientOptions, TreeOptions};

#[derive(Parser)]
#[command(about = "Measure opening of trees: classic keys beside pairs")]
struct Args {
    /// Names of trees with Ed25519 keys, one a line; their HOST is the replica.
    #[arg(long)]
    classic: PathBuf,
    #[arg(long)]
    classic_pid: u32,
    /// As many names of trees with pairs.
    #[arg(long)]
    pairs: PathBuf,
    #[arg(long)]
    pairs_pid: u32,
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

struct Subject {
    label: &'static str,
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
    let names = |path: &PathBuf| -> Vec<TreeName> {
        let text = std::fs::read_to_string(path).or_exit("read the names");
        text.lines().map(|line| line.parse().or_exit("read a name")).collect()
    };
    let subject = |label, path, replica_pid| {
        let names = names(path);
        assert!(!names.is_empty(), "a list of names is empty");
        Subject { label, names, replica_pid, samples: Vec::new() }
    };
    let mut subjects = [
        subject("classic", &args.classic, args.classic_pid),
        subject("pairs", &args.pairs, args.pairs_pid),
    ];
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
        let ratio = |value: fn(&Sample) -> f64| {
            let [classic, pairs] = &subjects;
            let of_round = |(a, b): (&Sample, &Sample)| value(b) / value(a);
            median(classic.samples.iter().zip(&pairs.samples).map(of_round))
        };
        println!(
            "ratio of pairs, {per_client:4} trees a client: client CPU {:.2}, replica CPU {:.2}, trees/s {:.2}",
            ratio(|sample| sample.client_us),
            ratio(|sample| sample.replica_us),
            ratio(|sample| sample.rate),
        );
        subjects.iter_mut().for_each(|subject| subject.samples.clear());
    }
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
