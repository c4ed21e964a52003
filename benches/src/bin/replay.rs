//! Many clients at once replay the reads of a compile over a real tree: throughput, failures,
//! memory a connection.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Parser;
use vouch_benches::load::{Exchange, Plan, drive};
use vouch_benches::process::{Server, free_port};
use vouch_benches::rpc::Request;
use vouch_benches::{OrStop as _, bare, machine, tree};

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
    /// Be a bare server on this port instead; for the benchmark's own use.
    #[arg(long, hide = true, requires_all = ["request_len", "answer_len"])]
    bare: Option<u16>,
    #[arg(long, hide = true)]
    request_len: Option<usize>,
    #[arg(long, hide = true)]
    answer_len: Option<usize>,
}

/// The replica's peer: a loop that only receives and sends, answers as long as the trace's are on
/// average.
struct Bare {
    reads: usize,
    request: Vec<u8>,
    answer_len: usize,
}

impl Exchange for Bare {
    fn request(&self, _: usize, step: usize) -> Option<&[u8]> {
        (step < self.reads).then_some(&self.request)
    }

    fn check(&self, _: usize, _: usize, received: &[u8], _: bool) -> Result<bool, String> {
        Ok(received.len() == self.answer_len)
    }
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
    if let (Some(port), Some(request_len), Some(answer_len)) = (args.bare, args.request_len, args.answer_len) {
        bare::serve(port, request_len, answer_len);
        return;
    }
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
    let replica = || Server::vouch(&args.vouch, &published.path(), 2);
    let (warm, server) = (Plan { threads: 1, connections: 1, repeat: false, time: Duration::from_secs(60) }, replica());
    let once = drive(&server.addresses(), &trace, &warm);
    drop(server);
    let answer_len = (once.received / once.answers.max(1)) as usize;
    println!("answers: {answer_len} bytes on average; the bare loop's are all of this length");
    let bare = Bare { reads: args.reads, request: trace.requests[0].bytes.clone(), answer_len };
    let bare_server = || {
        let port = free_port();
        let mut command = Command::new(std::env::current_exe().or_stop("this program"));
        command.args(["--bare", &port.to_string(), "--request-len", &bare.request.len().to_string()]);
        command.args(["--answer-len", &answer_len.to_string()]);
        Server::start(command, port, None)
    };
    type Start<'a> = &'a dyn Fn() -> Server;
    let cases: [(&str, Start<'_>, &dyn Exchange); 2] = [("vouch", &replica, &trace), ("bare loop", &bare_server, &bare)];
    let mut rates = vec![vec![Vec::new(); args.clients.len()]; cases.len()];
    for _ in 0..args.rounds {
        for ((name, start, exchange), rates) in cases.iter().zip(&mut rates) {
            for (&clients, rates) in args.clients.iter().zip(rates) {
                rates.push(run(&args, name, &start(), *exchange, clients));
            }
        }
    }
    for ((name, ..), rates) in cases.iter().zip(rates) {
        let all: Vec<_> = rates.iter().map(|rates| vouch_benches::median(rates.clone())).collect();
        for (i, clients) in args.clients.iter().enumerate() {
            let pairs = rates[i].iter().zip(&rates[0]).map(|(many, few)| many / few).collect();
            let ratio = vouch_benches::median(pairs);
            println!("median: {clients:>6} clients {:>8.0} answers/s, {ratio:.2} of those at {}  {name}", all[i], args.clients[0]);
        }
    }
}

/// One run against a fresh server; its rate with all clients connected.
fn run(args: &Args, name: &str, server: &Server, exchange: &dyn Exchange, clients: usize) -> f64 {
    let plan = Plan { threads: args.threads, connections: clients, repeat: false, time: Duration::from_secs(args.seconds) };
    let resident_before = server.resident_kib();
    let (outcome, resident) = std::thread::scope(|scope| {
        let load = scope.spawn(|| drive(&server.addresses(), exchange, &plan));
        let mut resident = resident_before;
        while !load.is_finished() {
            resident = resident.max(server.resident_kib());
            std::thread::sleep(Duration::from_millis(100));
        }
        (load.join(), resident)
    });
    let outcome = outcome.map_err(|_| "panicked").or_stop("load generator");
    let seconds = outcome.elapsed.as_secs_f64();
    println!(
        "{name}, {clients:>6} clients: {} finished, {} failures, {} answers in {seconds:.1} s: {:.0} answers/s with all connected, {:.0} MiB/s; \
         CPU/call: server {:.1} us, client {:.1} us; resident {} KiB before, {} KiB at most: {:.2} KiB a connection",
        outcome.done,
        outcome.failures,
        outcome.answers,
        outcome.steady_rate,
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
    outcome.steady_rate
}
