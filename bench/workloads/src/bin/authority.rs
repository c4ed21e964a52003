//! An authority of names: a replica of a published tree whose entries are symbolic links, beside
//! NSD with a zone of as many TXT records, signed with Ed25519. Both are asked over TCP, and each
//! client verifies each answer. `bench/workloads/authority.sh` makes the tree and the zone and runs this.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use vouch_bench::cpu::ServerCpu;
use vouch_benches::OrExit as _;
use vouch_benches::dns::Zone;
use vouch_tree::{Content, TreeName};
use vouch_tree_client::{Client, ClientOptions, TreeOptions};

#[derive(Parser)]
#[command(about = "Measure verified look-ups of names: a replica beside a DNS server")]
struct Args {
    /// Name of the authority's tree; its HOST is the replica.
    #[arg(long)]
    tree: String,
    #[arg(long)]
    replica_pid: u32,
    /// Address of the DNS server.
    #[arg(long)]
    dns: SocketAddr,
    /// Its processes.
    #[arg(long)]
    dns_pid: Vec<u32>,
    /// DNSKEY record of the zone, as ldns-keygen writes it.
    #[arg(long)]
    dns_key: PathBuf,
    /// Names are n0 to n(N - 1).
    #[arg(long, default_value_t = 1_000_000)]
    names: u64,
    /// Look-ups of each client, which then forgets everything.
    #[arg(long, default_values_t = [1, 200])]
    lookups: Vec<u64>,
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Clients at a time.
    #[arg(long, default_value_t = 8)]
    clients: usize,
}

/// What the clients of one measurement share.
struct Load {
    tree: TreeName,
    dns: SocketAddr,
    zone: Zone,
    names: u64,
    lookups: u64,
    end: Instant,
}

#[derive(Clone, Copy)]
enum Subject {
    Replica,
    Dns,
}

/// Of each look-up.
struct Sample {
    rate: f64,
    server_us: f64,
    client_us: f64,
}

fn main() {
    let args = Args::parse();
    for &lookups in &args.lookups {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..=args.rounds {
            for (subject, samples) in [Subject::Replica, Subject::Dns].into_iter().zip(&mut samples)
            {
                let sample = measure(&args, lookups, subject);
                // The first round fills the servers' caches.
                if round > 0 {
                    samples.push(sample);
                }
            }
        }
        for (label, samples) in ["replica", "nsd"].iter().zip(&samples) {
            println!(
                "{label:8} {lookups:4} look-ups a client: {:7.0}/s, server CPU {:6.1} us, client CPU {:6.1} us",
                median(samples, |sample| sample.rate),
                median(samples, |sample| sample.server_us),
                median(samples, |sample| sample.client_us)
            );
        }
    }
}

fn median(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(args: &Args, lookups: u64, subject: Subject) -> Sample {
    let servers = match subject {
        Subject::Replica => vec![args.replica_pid],
        Subject::Dns => args.dns_pid.clone(),
    };
    let began = Instant::now();
    let load = Arc::new(Load {
        tree: args.tree.parse().or_exit("read the tree's name"),
        dns: args.dns,
        zone: Zone::read(&args.dns_key).or_exit("read the zone's key"),
        names: args.names,
        lookups,
        end: began + Duration::from_secs_f64(args.seconds),
    });
    let seconds = |pid: &u32| ServerCpu::Process(*pid).seconds().or_exit("read CPU time");
    let seconds = || [servers.iter().map(seconds).sum::<f64>(), seconds(&std::process::id())];
    let before = seconds();
    let threads: Vec<_> = (0..args.clients)
        .map(|seed| {
            let load = load.clone();
            std::thread::spawn(move || load.client(subject, seed as u64))
        })
        .collect();
    let count: u64 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .sum();
    let after = seconds();
    let each = 1e6 / count as f64;
    Sample {
        rate: count as f64 / began.elapsed().as_secs_f64(),
        server_us: (after[0] - before[0]) * each,
        client_us: (after[1] - before[1]) * each,
    }
}

impl Load {
    /// Clients one after the other; the number of their look-ups.
    fn client(&self, subject: Subject, seed: u64) -> u64 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .or_exit("start a runtime");
        let (mut count, mut random) = (0, seed);
        while Instant::now() < self.end {
            let names: Vec<String> =
                (0..self.lookups).map(|_| format!("n{}", next(&mut random) % self.names)).collect();
            match subject {
                Subject::Replica => runtime.block_on(self.ask_replica(&names)),
                Subject::Dns => self.ask_dns(&names),
            }
            count += self.lookups;
        }
        count
    }

    async fn ask_replica(&self, names: &[String]) {
        let client = Client::new(ClientOptions::default()).or_exit("start a client");
        let tree = client.open(&self.tree, &TreeOptions::default()).await.or_exit("open the tree");
        let revision = tree.revision().or_exit("read the revision");
        for name in names {
            let link =
                tree.lookup_path(revision.root(), name.as_bytes()).await.or_exit("look up a name");
            let Content::Symlink(target) = &link.content else {
                panic!("{name} is a symbolic link")
            };
            assert!(target.starts_with(b"../@h"), "{name} leads to another tree");
        }
    }

    fn ask_dns(&self, names: &[String]) {
        let mut stream = TcpStream::connect(self.dns).or_exit("connect to the DNS server");
        stream.set_nodelay(true).or_exit("set TCP_NODELAY");
        let mut response = Vec::new();
        for (id, name) in (0..).zip(names) {
            stream.write_all(&self.zone.query(id, name)).or_exit("send a query");
            let mut len = [0; 2];
            stream.read_exact(&mut len).or_exit("receive a response");
            response.resize(usize::from(u16::from_be_bytes(len)), 0);
            stream.read_exact(&mut response).or_exit("receive a response");
            let text = self.zone.verify(name, &response).or_exit("verify a response");
            assert!(text.starts_with(b"@h"), "{name} leads to another tree");
        }
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
