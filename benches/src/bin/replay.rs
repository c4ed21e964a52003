//! Many clients at once replay the reads of a compile over a real tree: throughput, failures, memory a connection.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use vouch_benches::load::{Exchange, Plan, drive};
use vouch_benches::process::Server;
use vouch_benches::rpc::Request;
use vouch_benches::{machine, tree};

#[derive(Parser)]
#[command(about = "N clients replay a compile's reads against one replica; every frame's hash is checked")]
struct Args {
    /// The vouch program.
    #[arg(long, default_value = "target/release/vouch")]
    vouch: PathBuf,
    /// The tree to publish and read from.
    #[arg(long, default_value = "/usr/include")]
    source: PathBuf,
    /// GETDATA calls of one client (the paper's Emacs compile reads 1,428 blocks).
    #[arg(long, default_value_t = 1428)]
    reads: usize,
    /// Clients at once, one run each.
    #[arg(long, value_delimiter = ',', default_value = "300,1000,10000")]
    clients: Vec<usize>,
    /// Longest time of a run.
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    /// Threads of the load generator.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Runs of the whole list.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
}

/// Each client begins elsewhere in the same trace.
struct Trace {
    requests: Vec<Request>,
}

impl Trace {
    fn at(&self, client: usize, step: usize) -> &Request {
        &self.requests[(client * 61 + step) % self.requests.len()]
    }
}

impl Exchange for Trace {
    fn request(&self, client: usize, step: usize) -> Option<&[u8]> {
        (step < self.requests.len()).then(|| &self.at(client, step).bytes[..])
    }

    fn check(&self, client: usize, step: usize, received: &[u8], _: bool) -> Result<bool, String> {
        self.at(client, step).check(received)
    }
}

fn main() {
    let args = Args::parse();
    println!("replay: each client makes {} GETDATA calls of one frame, one after the other, over {}", args.reads, args.source.display());
    println!("machine: {}", machine());
    let published = tree::Published::new(&args.source, 3);
    let walked = published.walk();
    // Pages and file blocks in the order of a walk, evenly from the whole tree.
    let step = (walked.len() / args.reads).max(1);
    let picked = walked.iter().step_by(step).take(args.reads);
    let requests: Vec<_> = picked.map(|(_, handle)| Request::data(published.hostid, published.iv, vec![*handle])).collect();
    println!("tree: {} frames, {} of them in the trace", walked.len(), requests.len());
    let trace = Trace { requests };
    let mut rates = vec![Vec::new(); args.clients.len()];
    for _ in 0..args.rounds {
        for (&clients, rates) in args.clients.iter().zip(&mut rates) {
            rates.push(run(&args, &published, &trace, clients));
        }
    }
    for (clients, rates) in args.clients.iter().zip(rates) {
        let rate = vouch_benches::median(rates);
        println!("median: {clients:>6} clients {rate:>8.0} GETDATA/s");
    }
}

/// One run against a fresh replica; its rate.
fn run(args: &Args, published: &tree::Published, trace: &Trace, clients: usize) -> f64 {
    let server = Server::vouch(&args.vouch, &published.path(), 2);
    let plan = Plan { threads: args.threads, connections: clients, repeat: false, time: Duration::from_secs(args.seconds) };
    let resident_before = server.resident_kib();
    let (outcome, resident) = std::thread::scope(|scope| {
        let load = scope.spawn(|| drive(&server.addresses(), trace, &plan));
        let mut resident = resident_before;
        while !load.is_finished() {
            resident = resident.max(server.resident_kib());
            std::thread::sleep(Duration::from_millis(100));
        }
        (load.join(), resident)
    });
    let Ok(outcome) = outcome else {
        eprintln!("the load generator panicked");
        std::process::exit(1)
    };
    let seconds = outcome.elapsed.as_secs_f64();
    let rate = outcome.answers as f64 / seconds;
    println!(
        "{clients:>6} clients: {} finished, {} failures, {} answers in {seconds:.1} s: {rate:.0} GETDATA/s, {:.0} MiB/s; \
         CPU/call: server {:.1} us, client {:.1} us; resident {} KiB before, {} KiB at most: {:.2} KiB a connection",
        outcome.done,
        outcome.failures,
        outcome.answers,
        outcome.received as f64 / seconds / 1_048_576.0,
        server.cpu().as_secs_f64() * 1e6 / outcome.answers as f64,
        outcome.cpu.as_secs_f64() * 1e6 / outcome.answers as f64,
        resident_before,
        resident,
        (resident - resident_before) as f64 / clients as f64,
    );
    if let Some(why) = outcome.first_failure {
        println!("        first failure: {why}");
    }
    rate
}
