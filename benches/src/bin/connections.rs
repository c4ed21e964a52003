//! Connections a second: connect, ask, check, close; the replica against nginx plain and with TLS,
//! round by round in turn.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;
use vouch_benches::load::{Exchange, Plan, drive};
use vouch_benches::process::Server;
use vouch_benches::rpc::Request;
use vouch_benches::{OrStop as _, machine, median, tree};
use vouch_tree::FrameKind;

#[derive(Parser)]
#[command(about = "Connections a second of a replica, and of nginx without and with TLS 1.3")]
struct Args {
    /// The vouch program.
    #[arg(long, default_value = "target/release/vouch")]
    vouch: PathBuf,
    /// Rounds; each measures every case once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds a case and round.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Connections at once.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Threads of the load generator.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Leave TLS out.
    #[arg(long)]
    no_tls: bool,
}

struct Rpc(Vec<Request>);

impl Exchange for Rpc {
    fn request(&self, _: usize, step: usize) -> Option<&[u8]> {
        self.0.get(step).map(|request| &request.bytes[..])
    }

    fn check(&self, _: usize, step: usize, received: &[u8], _: bool) -> Result<bool, String> {
        self.0[step].check(received)
    }
}

/// One or more GETs of a file; without keep-alive the server ends the connection.
struct Http {
    requests: Vec<Vec<u8>>,
    content: Vec<u8>,
    keep_alive: bool,
}

impl Http {
    fn close(name: &str, content: &[u8]) -> Self {
        let requests = vec![format!("GET /{name} HTTP/1.0\r\n\r\n").into_bytes()];
        Self { requests, content: content.to_vec(), keep_alive: false }
    }

    fn keep_alive(name: &str, content: &[u8], requests: usize) -> Self {
        let request = format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        Self { requests: vec![request; requests], content: content.to_vec(), keep_alive: true }
    }
}

impl Exchange for Http {
    fn request(&self, _: usize, step: usize) -> Option<&[u8]> {
        self.requests.get(step).map(Vec::as_slice)
    }

    fn check(&self, _: usize, _: usize, received: &[u8], ended: bool) -> Result<bool, String> {
        let right = received.starts_with(b"HTTP/1.1 200 OK\r\n") && received.ends_with(&self.content);
        match (right, ended || self.keep_alive) {
            (true, whole) => Ok(whole),
            (false, _) if ended => Err("another answer".into()),
            (false, _) => Ok(false),
        }
    }
}

struct Case<'a> {
    name: &'static str,
    server: &'a Server,
    /// `None`: openssl s_time.
    exchange: Option<&'a dyn Exchange>,
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    client_us: Vec<f64>,
}

fn main() {
    let args = Args::parse();
    println!("connections: connect, ask, check, close ({} at once, {} client threads)", args.connections, args.threads);
    println!("machine: {}", machine());
    let content = tree::noise(600, 9);
    let source = tree::small_files(&content);
    let published = tree::Published::new(source.path(), 3);
    let walked = published.walk();
    let pages: Vec<_> = walked.iter().filter(|(kind, _)| *kind == FrameKind::DirLeaf).map(|(_, handle)| *handle).collect();
    let leaves: Vec<_> = walked.iter().filter(|(kind, _)| *kind == FrameKind::Leaf).map(|(_, handle)| *handle).collect();
    let data = |handles| Request::data(published.hostid, published.iv, handles);
    // The tree is small, so all of it goes along with the fsinfo: the file that lies in the root's
    // page, and the one three directories down.
    let companions = published.companions();
    assert!(leaves.iter().chain(&pages).all(|handle| companions.contains(handle)), "the whole tree goes along");
    let along = Rpc(vec![Request::fsinfo(&published, companions)]);
    // As a client that knows the directories from before, but not whether they are still so, and lacks
    // the file.
    let again = Rpc(vec![Request::fsinfo(&published, Vec::new()), data(vec![leaves[0]])]);
    let mut deep: Vec<_> = vec![Request::fsinfo(&published, Vec::new())];
    deep.extend(pages.iter().chain(&leaves).map(|handle| data(vec![*handle])));
    let deep = Rpc(deep);
    let leaf = tree::noise(tree::LEAF_FILE_LEN, 3);
    let (http_small, http_leaf) = (Http::close("small", &content), Http::close("leaf", &leaf));
    let http_twice = Http::keep_alive("leaf", &leaf, 2);

    let replica = Server::vouch(&args.vouch, &published.path(), 2);
    let files: [(&str, &[u8]); 2] = [("small", &content), ("leaf", &leaf)];
    let plain = Server::nginx(&files, false, false);
    let lasting = Server::nginx(&files, false, true);
    let tls = (!args.no_tls).then(|| Server::nginx(&files, true, false));
    let case = |name, server, exchange| Case { name, server, exchange, rates: Vec::new(), cpu_us: Vec::new(), client_us: Vec::new() };
    let mut cases = vec![
        case("vouch: GETFSINFO, and the whole tree with it", &replica, Some(&along as &dyn Exchange)),
        case("nginx: GET of its file of 600 bytes without keep-alive", &plain, Some(&http_small)),
        case("vouch: GETFSINFO, then 1 GETDATA of the file of 2,000 bytes", &replica, Some(&again)),
        case("nginx: GET of its file of 2,000 bytes without keep-alive", &plain, Some(&http_leaf)),
        case("nginx: 2 GETs of that on one connection (two round trips, too)", &lasting, Some(&http_twice)),
        case("vouch: GETFSINFO, 5 GETDATA in turn (3 deep)", &replica, Some(&deep)),
    ];
    if let Some(tls) = &tls {
        cases.push(case("nginx: TLS 1.3 full handshake, GET", tls, None));
    }
    for round in 1..=args.rounds {
        for case in &mut cases {
            case.measure(&args);
            let (rate, cpu, client) = (case.rates[round - 1], case.cpu_us[round - 1], case.client_us[round - 1]);
            println!("round {round}: {rate:>8.0} conn/s, CPU/conn: server {cpu:>6.1} us, client {client:>6.1} us  {}", case.name);
        }
    }
    println!();
    for case in &cases {
        let client = median(case.client_us.clone());
        println!("median: {:>8.0} conn/s, CPU/conn: server {:>6.1} us, client {client:>6.1} us  {}", case.rate(), case.cpu(), case.name);
    }
    let compare = |what: &str, vouch: &Case<'_>, nginx: &Case<'_>| {
        let pairs = |a: &[f64], b: &[f64]| median(a.iter().zip(b).map(|(a, b)| a / b).collect());
        let (rate, cpu) = (pairs(&vouch.rates, &nginx.rates), pairs(&vouch.cpu_us, &nginx.cpu_us));
        println!("{what}, median of the rounds' ratios: {rate:.2} in conn/s, {cpu:.2} in server CPU");
    };
    compare("vouch in one call / nginx plain, 600 bytes", &cases[0], &cases[1]);
    compare("vouch in one call / nginx plain, 2,000 bytes", &cases[0], &cases[3]);
    compare("vouch 1 GETDATA / nginx plain", &cases[2], &cases[3]);
    compare("vouch 1 GETDATA / nginx plain, 2 GETs on a connection", &cases[2], &cases[4]);
    if let Some(tls) = cases.get(6) {
        println!(
            "vouch in one call / nginx TLS: {:.1} in conn/s; 1 GETDATA / nginx TLS: {:.1}",
            cases[0].rate() / tls.rate(),
            cases[2].rate() / tls.rate()
        );
    }
}

impl Case<'_> {
    fn measure(&mut self, args: &Args) {
        let before = self.server.cpu();
        let (done, rate, client) = match self.exchange {
            Some(exchange) => {
                let time = Duration::from_secs(args.seconds);
                let plan = Plan { threads: args.threads, connections: args.connections, repeat: true, time };
                let outcome = drive(&self.server.addresses(), exchange, &plan);
                if let Some(why) = outcome.first_failure {
                    Err::<(), _>(format!("{} failures, the first: {why}", outcome.failures)).or_stop(self.name);
                }
                (outcome.done as f64, outcome.done as f64 / outcome.elapsed.as_secs_f64(), outcome.cpu.as_secs_f64())
            }
            None => {
                let done = handshakes(self.server.port, args.seconds);
                (done, done / args.seconds as f64, f64::NAN)
            }
        };
        self.rates.push(rate);
        self.client_us.push(client * 1e6 / done);
        self.cpu_us.push((self.server.cpu() - before).as_secs_f64() * 1e6 / done);
    }

    fn rate(&self) -> f64 {
        median(self.rates.clone())
    }

    fn cpu(&self) -> f64 {
        median(self.cpu_us.clone())
    }
}

/// Full TLS 1.3 handshakes and one GET each, by four of OpenSSL's own load generators at once; how
/// many.
fn handshakes(port: u16, seconds: u64) -> f64 {
    let start = || {
        let mut command = Command::new("openssl");
        command
            .args(["s_time", "-new", "-tls1_3", "-www", "/small", "-time", &seconds.to_string(), "-connect"])
            .arg(format!("127.0.0.1:{port}"));
        command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().or_stop("openssl s_time")
    };
    let running: Vec<_> = (0..4).map(|_| start()).collect();
    let count = |child: std::process::Child| {
        let output = child.wait_with_output().or_stop("openssl s_time");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("real seconds")).map(str::to_owned);
        line.and_then(|line| line.split(' ').next()?.parse::<f64>().ok()).ok_or(text).or_stop("openssl s_time")
    };
    running.into_iter().map(count).sum()
}
