//! `fleet`: simulates many nodes that start one job after a release.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use vouch_fleet::{CacheFailure, Error, FleetOptions, NetworkOptions, Outcome, Release, simulate};

/// Simulate many nodes that start the same job from a published tree after a release.
///
/// The nodes run the real client on a virtual clock; only the network is simulated. The same
/// options give the same figures.
#[derive(Parser)]
struct Args {
    /// Number of nodes
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// Number of web caches; 0: all nodes read from the origin
    #[arg(long, default_value_t = 8)]
    caches: usize,
    /// Caches that each node knows: its own, then its neighbours'
    #[arg(long, default_value_t = 2)]
    caches_per_node: usize,
    /// Nodes never ask the origin themselves
    #[arg(long)]
    no_direct: bool,
    /// Bandwidth of the caches: one for all, or one for each, separated by commas
    #[arg(long, value_name = "MBIT_S", value_delimiter = ',', default_value = "10000")]
    cache_bandwidth: Vec<f64>,
    /// Bandwidth of the origin
    #[arg(long, value_name = "MBIT_S", default_value_t = 1000.0)]
    origin_bandwidth: f64,
    /// Bandwidth of a node
    #[arg(long, value_name = "MBIT_S", default_value_t = 1000.0)]
    node_bandwidth: f64,
    /// Round-trip time between a node and a cache
    #[arg(long, value_name = "MS", default_value_t = 0.5)]
    cache_rtt: f64,
    /// Round-trip time to the origin
    #[arg(long, value_name = "MS", default_value_t = 20.0)]
    origin_rtt: f64,
    /// Requests that a server answers in a second
    #[arg(long, value_name = "COUNT", default_value_t = 10_000.0)]
    requests: f64,
    /// Fraction of packets that are lost
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0)]
    loss: f64,
    /// A cache that refuses connections: CACHE@AT+DURATION, in seconds after the release
    #[arg(long, value_name = "FAILURE", value_parser = |text: &str| failure(text, false))]
    kill: Vec<CacheFailure>,
    /// A cache whose host answers nothing: CACHE@AT+DURATION
    #[arg(long, value_name = "FAILURE", value_parser = |text: &str| failure(text, true))]
    silence: Vec<CacheFailure>,
    /// Time from the release to the job
    #[arg(long, value_name = "S", default_value_t = 120)]
    job_after: u64,
    /// Time in which the nodes start the job
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    spread: f64,
    /// Files of the synthetic program
    #[arg(long, default_value_t = 600)]
    files: usize,
    /// Release this directory instead of the synthetic program
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// File with the paths that the job reads of DIR, one on each line; all if absent
    #[arg(long, value_name = "FILE", requires = "source")]
    job: Option<PathBuf>,
    /// Longest pack, in KiB: squid keeps no parts of larger ones
    #[arg(long, value_name = "KIB", default_value_t = 1024)]
    pack_size: u32,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(outcome) if args.json => {
            println!("{}", serde_json::to_string_pretty(&outcome).unwrap_or_default())
        }
        Ok(outcome) => print(&args, &outcome),
        Err(error) => {
            eprintln!("fleet: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(args: &Args) -> Result<Outcome, Error> {
    let pack_len_max = args.pack_size.saturating_mul(1024);
    let release = match &args.source {
        None => Release::synthetic(args.files, pack_len_max)?,
        Some(source) => {
            let list = match &args.job {
                Some(path) => std::fs::read_to_string(path)
                    .map_err(|error| Error::Io { path: path.clone(), error })?,
                None => String::new(),
            };
            Release::of_directory(source, list.lines().map(str::to_owned).collect(), pack_len_max)?
        }
    };
    let network = NetworkOptions {
        caches: args.caches,
        cache_bandwidths: args.cache_bandwidth.iter().map(|bandwidth| bandwidth * 125e3).collect(),
        cache_rtt: Duration::from_secs_f64(args.cache_rtt.max(0.0) / 1e3),
        origin_bandwidth: args.origin_bandwidth * 125e3,
        origin_rtt: Duration::from_secs_f64(args.origin_rtt.max(0.0) / 1e3),
        node_bandwidth: args.node_bandwidth * 125e3,
        requests_per_s: args.requests,
        loss: args.loss,
        failures: args.kill.iter().chain(&args.silence).copied().collect(),
        ..NetworkOptions::default()
    };
    simulate(
        &release,
        &FleetOptions {
            nodes: args.nodes,
            network,
            caches_per_node: args.caches_per_node,
            falls_back_to_origin: !args.no_direct,
            job_after: Duration::from_secs(args.job_after),
            start_spread: Duration::from_secs_f64(args.spread.max(0.0)),
            seed: args.seed,
            ..FleetOptions::default()
        },
    )
}

fn failure(text: &str, is_silent: bool) -> Result<CacheFailure, String> {
    let parsed = || {
        let (cache, times) = text.split_once('@')?;
        let (at, lasts) = times.split_once('+')?;
        let seconds = |text: &str| {
            text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        };
        Some(CacheFailure {
            cache: cache.parse().ok()?,
            at: seconds(at)?,
            lasts: seconds(lasts)?,
            is_silent,
        })
    };
    parsed().ok_or_else(|| "expected CACHE@AT+DURATION, such as 0@121+60".to_owned())
}

fn print(args: &Args, outcome: &Outcome) {
    let traffic = &outcome.traffic;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!("nodes                         {:>10}", args.nodes);
    println!("  finished without an error   {:>10}", outcome.nodes_done);
    println!("files that were not read      {:>10}", outcome.errors);
    println!("content of the job            {:>10.1} MB", mb(outcome.job_bytes));
    println!(
        "new revision seen: half, last {:>10.1} {:.1} s",
        outcome.release_seen[0], outcome.release_seen[1]
    );
    println!("job finished: half            {:>10.2} s", outcome.finished[0]);
    println!("              99 %            {:>10.2} s", outcome.finished[1]);
    println!("              last node       {:>10.2} s", outcome.finished[2]);
    println!("origin: sent                  {:>10.1} MB", mb(traffic.origin_bytes));
    println!("        requests              {:>10}", traffic.origin_requests);
    println!("caches: sent                  {:>10.1} MB", mb(traffic.cache_bytes));
    println!("        requests              {:>10}", traffic.cache_requests);
    println!(
        "        hits                  {:>10.2} %",
        100.0 * traffic.cache_hits as f64 / traffic.cache_requests.max(1) as f64
    );
}
