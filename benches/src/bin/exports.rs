//! A live export under load: `vouch export` against NFS-Ganesha, of the same directory, by the same
//! client, round by round in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser;
use vouch_benches::kernel_audit::KernelAudit;
use vouch_benches::nfs::files::{BLOCK_LEN, Opened, Reads, Writes};
use vouch_benches::nfs::kerberos::{self, Realm, Security};
use vouch_benches::nfs::metadata::{Getattr, OpenOne, Remove, Small, Use};
use vouch_benches::nfs::pages::{self, PAGE_LEN};
use vouch_benches::nfs::{Client, Outcome, Work, idle, peers};
use vouch_benches::process::Server;
use vouch_benches::{OrStop as _, machine, median};
use vouch_nfs4::op::StableHow;

#[derive(Parser)]
#[command(about = "Throughput, latency, CPU and memory of a live export, and of NFS-Ganesha")]
struct Args {
    /// The vouch program.
    #[arg(long, default_value = "target/release/vouch")]
    vouch: PathBuf,
    /// Directory to export; what is made there is removed at the end.
    #[arg(long)]
    dir: PathBuf,
    /// Rounds; each measures every case once with each server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds a case, server and round, where the case has no size of its own.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Connections of the client.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// MiB of the file that is read, and of the one that is written.
    #[arg(long, default_value_t = 512)]
    file_mib: u64,
    /// Small files.
    #[arg(long, default_value_t = 10_000)]
    files: usize,
    /// Ganesha's worker threads; 0 leaves Ganesha out.
    #[arg(long, default_value_t = 4)]
    ganesha_threads: usize,
    /// First of two ports to serve on; free ones by default.
    #[arg(long)]
    port: Option<u16>,
    /// Only cases whose name contains one of these.
    #[arg(long)]
    only: Vec<String>,
    /// Also creation whose writes are FILE_SYNC.
    #[arg(long)]
    durable: bool,
    /// Flavours to measure, each with a server of its own: sys, krb5, krb5i, krb5p. Kerberos by a
    /// KDC that is started for the run.
    #[arg(long, value_delimiter = ',', default_value = "sys")]
    sec: Vec<Security>,
    /// Encryption type of the Kerberos sessions.
    #[arg(long, default_value = "aes256-cts-hmac-sha1-96")]
    enctype: String,
    /// Export with `async`: replies don't wait for names and attributes, as Ganesha's don't.
    #[arg(long)]
    r#async: bool,
    /// Beside each of our servers one that records every operation, in a trail below this
    /// directory, instead of Ganesha. A trail that is there is gone on with.
    #[arg(long, value_name = "DIR")]
    audited: Option<PathBuf>,
    /// And one whose directory the kernel audits while it is measured (root; a machine whose audit
    /// nobody uses).
    #[arg(long, requires = "audited")]
    kernel_audit: bool,
    /// Random reads of 4 KiB with so many calls in flight, instead of the other cases.
    #[arg(long)]
    depth: Option<usize>,
    /// Memory with so many idle clients and open files, instead of load.
    #[arg(long)]
    memory: Option<usize>,
}

/// One kind of load.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    kind: Kind,
    depth: usize,
    /// Least throughput and most server CPU that are wanted, as parts of Ganesha's.
    goal: (f64, f64),
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
    Random,
    Create(StableHow),
    ReadBack,
    Remove,
    Getattr,
}

const CASES: [Case; 11] = [
    Case { name: "read 1 MiB depth 1", kind: Kind::Read, depth: 1, goal: (1.0, 0.6) },
    Case { name: "read 1 MiB depth 16", kind: Kind::Read, depth: 16, goal: (1.5, 0.6) },
    Case { name: "write 1 MiB depth 1", kind: Kind::Write, depth: 1, goal: (1.0, 0.6) },
    Case { name: "write 1 MiB depth 16", kind: Kind::Write, depth: 16, goal: (1.2, 0.6) },
    Case { name: "random 4 KiB depth 1", kind: Kind::Random, depth: 1, goal: (1.0, 1.0) },
    Case { name: "random 4 KiB depth 64", kind: Kind::Random, depth: 64, goal: (1.5, 0.5) },
    Case { name: "create depth 16", kind: Kind::Create(StableHow::Unstable), depth: 16, goal: (1.3, 0.6) },
    Case { name: "read back depth 16", kind: Kind::ReadBack, depth: 16, goal: (1.5, 0.6) },
    Case { name: "remove depth 16", kind: Kind::Remove, depth: 16, goal: (1.3, 0.6) },
    Case { name: "durable create depth 16", kind: Kind::Create(StableHow::FileSync), depth: 16, goal: (1.3, 0.6) },
    Case { name: "getattr depth 16", kind: Kind::Getattr, depth: 16, goal: (1.5, 0.5) },
];

/// A server, its client, and what it has open there.
struct Peer {
    name: String,
    server: Server,
    client: Client,
    read: Opened,
    write: Opened,
    outcomes: Vec<Vec<Outcome>>,
}

fn main() {
    let args = Args::parse();
    let realm = realm(&args);
    let sync = if args.r#async { "async" } else { "sync" };
    println!("exports: {} connection(s) of one client, vouch's export {sync}, {}", args.connections, file_system(&args.dir));
    if realm.is_some() {
        println!("kerberos: {}", args.enctype);
    }
    println!("machine: {}", machine());
    let place = args.dir.join("exports-bench");
    fs::create_dir_all(&place).or_stop(place.display());
    let kept = Kept(place.clone());
    match args.memory {
        Some(count) => memory(&args, &place, count),
        None => load(&args, &place, realm.as_ref()),
    }
    drop(kept);
}

/// Removes what was made, also when the run ends early.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn servers(args: &Args, realm: Option<&Realm>) -> Vec<(&'static str, Server)> {
    let mut servers = vec![("vouch", peers::vouch(&args.vouch, &args.dir, args.port, !args.r#async, realm, None))];
    if let Some(trails) = &args.audited {
        let trail = trails.join(if realm.is_some() { "kerberos" } else { "sys" });
        servers.push((
            "vouch-audited",
            peers::vouch(&args.vouch, &args.dir, args.port.map(|port| port + 1), !args.r#async, realm, Some(&trail)),
        ));
    } else if args.ganesha_threads > 0 {
        servers.push(("ganesha", peers::ganesha(&args.dir, args.port.map(|port| port + 1), args.ganesha_threads, realm)));
    }
    servers
}

/// The realm of the run, if one is needed. The library looks at its environment alone, so the run
/// goes on in a child of this process that has it.
fn realm(args: &Args) -> Option<Realm> {
    if args.sec.iter().all(|sec| *sec == Security::Sys) {
        return None;
    }
    if let Some(realm) = Realm::inherited() {
        return Some(realm);
    }
    let status = Realm::run_below(&args.enctype);
    std::process::exit(status);
}

fn load(args: &Args, place: &Path, realm: Option<&Realm>) {
    let file_pages = args.file_mib * (1 << 20) / PAGE_LEN as u64;
    pages::make(&place.join("read"), file_pages);
    let cases: Vec<Case> = match args.depth {
        Some(depth) => vec![Case { name: "random 4 KiB", kind: Kind::Random, depth, goal: (1.0, 1.0) }],
        None => CASES.into_iter().filter(|case| wanted(args, case)).collect(),
    };
    let mut peers: Vec<Peer> = Vec::new();
    let kernel = args.kernel_audit.then(KernelAudit::take);
    for &sec in &args.sec {
        for (name, server) in servers(args, realm) {
            let name = if sec == Security::Sys { name.to_owned() } else { format!("{name}-{sec}") };
            peers.push(peer(args, place, name, server, cases.len(), sec));
        }
    }
    if kernel.is_some() {
        let server = peers::vouch(&args.vouch, &args.dir, None, !args.r#async, None, None);
        peers.push(peer(args, place, "vouch-kernel".into(), server, cases.len(), Security::Sys));
    }
    kernel.iter().for_each(KernelAudit::off);
    for round in 1..=args.rounds {
        for (at, case) in cases.iter().enumerate() {
            for peer in &mut peers {
                let watched = kernel.as_ref().filter(|_| peer.name == "vouch-kernel");
                watched.iter().for_each(|kernel| kernel.watch(&args.dir));
                let outcome = measure(args, place, *case, round, peer);
                watched.iter().for_each(|kernel| kernel.off());
                println!("round {round}: {:<24} {:<13} {}", case.name, peer.name, told(case, &outcome));
                peer.outcomes[at].push(outcome);
            }
        }
    }
    println!();
    for (at, case) in cases.iter().enumerate() {
        for peer in &peers {
            println!("median: {:<24} {:<13} {}", case.name, peer.name, told(case, &middle(&peer.outcomes[at])));
        }
    }
    if args.audited.is_some() {
        peers.chunks_exact(2).for_each(|pair| added(&cases, &pair[0], &pair[1]));
        if let Some((watched, kernel)) = peers.last().filter(|peer| peer.name == "vouch-kernel").zip(kernel.as_ref()) {
            added(&cases, &peers[0], watched);
            println!("records that the kernel lost: {}", kernel.lost());
        }
        return;
    }
    for own in ["vouch", "ganesha"] {
        let mut of_one = peers.iter().filter(|peer| peer.name.split('-').next() == Some(own));
        let Some(base) = of_one.next() else { continue };
        of_one.for_each(|peer| added(&cases, base, peer));
    }
    for pair in peers.chunks_exact(2).filter(|_| args.ganesha_threads > 0 && args.audited.is_none()) {
        let [ours, theirs] = pair else { continue };
        println!("\nmedians of the rounds' ratios, {} / {}, and what is wanted under sys:", ours.name, theirs.name);
        for (at, case) in cases.iter().enumerate() {
            let pairs = |value: fn(&Outcome) -> f64| {
                median(ours.outcomes[at].iter().zip(&theirs.outcomes[at]).map(|(a, b)| value(a) / value(b)).collect())
            };
            println!(
                "{:<24} rate {:>5.2} (>= {:.1})  server CPU an operation {:>5.2} (<= {:.1})  p50 {:>5.2}  p99 {:>5.2}",
                case.name,
                pairs(rate),
                case.goal.0,
                pairs(|outcome| outcome.server_s / outcome.done as f64),
                case.goal.1,
                pairs(|outcome| outcome.p50_us),
                pairs(|outcome| outcome.p99_us),
            );
        }
    }
}

/// What a flavour costs over the first one.
fn added(cases: &[Case], base: &Peer, peer: &Peer) {
    println!("\nmedians of the rounds' differences, {} over {}:", peer.name, base.name);
    for (at, case) in cases.iter().enumerate() {
        let pairs = |value: &dyn Fn(&Outcome, &Outcome) -> f64| {
            median(peer.outcomes[at].iter().zip(&base.outcomes[at]).map(|(with, without)| value(with, without)).collect())
        };
        let bulk = matches!(case.kind, Kind::Read | Kind::Write);
        let server = pairs(&|with, without| cost(bulk, with) - cost(bulk, without));
        println!(
            "{:<24} rate {:>5.2}  server CPU {}  p50 {:>+8.1} us  p99 {:>+8.1} us",
            case.name,
            pairs(&|with, without| rate(with) / rate(without)),
            if bulk { format!("{server:>+6.3} s/GiB") } else { format!("{server:>+6.1} us/op") },
            pairs(&|with, without| with.p50_us - without.p50_us),
            pairs(&|with, without| with.p99_us - without.p99_us),
        );
    }
}

/// Server CPU: seconds a GiB, or microseconds an operation.
fn cost(bulk: bool, outcome: &Outcome) -> f64 {
    match bulk {
        true => outcome.server_s * (1u64 << 30) as f64 / outcome.bytes as f64,
        false => outcome.server_s * 1e6 / outcome.done as f64,
    }
}

fn wanted(args: &Args, case: &Case) -> bool {
    let durable = case.kind == Kind::Create(StableHow::FileSync);
    (!durable || args.durable) && (args.only.is_empty() || args.only.iter().any(|part| case.name.contains(part.as_str())))
}

fn peer(args: &Args, place: &Path, name: String, server: Server, cases: usize, sec: Security) -> Peer {
    let mut client = kerberos::connect(server.port, &format!("bench of {name}"), args.connections, args.depth.unwrap_or(64), sec);
    fs::write(place.join(format!("write-{name}")), b"").or_stop("the file to write");
    let mut open = |file: &str, writes| {
        let handle = client.handle(&["exports-bench", file]);
        let mut one = OpenOne { handle, writes, opened: None };
        client.run(&mut one, 1, None, None);
        one.opened.expect("a reply came")
    };
    let (read, write) = (open("read", false), open(&format!("write-{name}"), true));
    Peer { name, server, client, read, write, outcomes: vec![Vec::new(); cases] }
}

fn measure(args: &Args, place: &Path, case: Case, round: usize, peer: &mut Peer) -> Outcome {
    let pages = args.file_mib * (1 << 20) / PAGE_LEN as u64;
    let time = Some(Duration::from_secs_f64(args.seconds));
    let Peer { server, client, .. } = peer;
    let mut run = |work: &mut dyn Work, time| client.run(&mut Dynamic(work), case.depth, time, Some(server));
    match case.kind {
        Kind::Read => run(&mut Reads::in_sequence(peer.read, pages, case.depth), time),
        Kind::Random => run(&mut Reads::at_random(peer.read, pages, case.depth), time),
        Kind::Write => {
            let blocks = args.file_mib * (1 << 20) / BLOCK_LEN as u64;
            let outcome = run(&mut Writes::new(peer.write, blocks, case.depth), time);
            if round == args.rounds && outcome.done >= blocks {
                let file = place.join(format!("write-{}", peer.name));
                assert!(pages::verify(&file, pages), "{} holds what was written", file.display());
            }
            outcome
        }
        Kind::Create(stable) => {
            let (name, path) = directory(place, &peer.name, round, stable);
            fs::create_dir(&path).or_stop(path.display());
            let handle = client.handle(&["exports-bench", &name]);
            let mut work = Small::new(handle, 0..args.files, Use::Create(stable), case.depth);
            let outcome = client.run(&mut work, case.depth, None, Some(server));
            assert!(Small::verify(&path, 0..args.files), "{} holds what was written", path.display());
            outcome
        }
        Kind::ReadBack | Kind::Remove => {
            let (name, path) = directory(place, &peer.name, round, StableHow::Unstable);
            let made = path.exists();
            if !made {
                fs::create_dir(&path).or_stop(path.display());
            }
            let handle = client.handle(&["exports-bench", &name]);
            if !made {
                client.run(&mut Small::new(handle, 0..args.files, Use::Create(StableHow::Unstable), case.depth), case.depth, None, None);
            }
            if case.kind == Kind::ReadBack {
                return client.run(&mut Small::new(handle, 0..args.files, Use::Read, case.depth), case.depth, None, Some(server));
            }
            let outcome = client.run(&mut Remove::new(handle, 0..args.files, case.depth), case.depth, None, Some(server));
            // Whoever asks for these files next makes them anew.
            fs::remove_dir(&path).or_stop("a directory whose files were removed");
            outcome
        }
        Kind::Getattr => {
            let handles = vec![peer.read.handle, peer.write.handle];
            run(&mut Getattr { handles, at: 0 }, time)
        }
    }
}

/// Directory of one round's small files: a new one each time, since a file system is slow where
/// many files were just removed.
fn directory(place: &Path, peer: &str, round: usize, stable: StableHow) -> (String, PathBuf) {
    let name = format!("small-{peer}-{round}{}", if stable == StableHow::Unstable { "" } else { "-durable" });
    let path = place.join(&name);
    (name, path)
}

/// Lets one place run loads of several types.
struct Dynamic<'a>(&'a mut dyn Work);

impl Work for Dynamic<'_> {
    fn next(&mut self, lane: usize) -> bool {
        self.0.next(lane)
    }

    fn write(&mut self, lane: usize, call: &mut vouch_nfs4_client::OpenCall, w: &mut vouch_xdr::Writer) {
        self.0.write(lane, call, w);
    }

    fn data(&mut self, lane: usize) -> Option<std::sync::Arc<[u8]>> {
        self.0.data(lane)
    }

    fn reply(&mut self, lane: usize, body: vouch_nfs4_client::ReplyBody<'_>) -> Result<vouch_benches::nfs::Gain, vouch_nfs4_client::Error> {
        self.0.reply(lane, body)
    }
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.done as f64 / outcome.elapsed_s
}

fn told(case: &Case, outcome: &Outcome) -> String {
    let (gib, done) = (outcome.bytes as f64 / (1u64 << 30) as f64, outcome.done as f64);
    let (speed, cpu) = if matches!(case.kind, Kind::Read | Kind::Write) {
        let (server, client) = (outcome.server_s / gib, outcome.client_s / gib);
        (format!("{:>8.0} MiB/s", gib * 1024.0 / outcome.elapsed_s), format!("server {server:>6.3} s/GiB, client {client:>6.3} s/GiB"))
    } else {
        let (server, client) = (outcome.server_s * 1e6 / done, outcome.client_s * 1e6 / done);
        (format!("{:>8.0} op/s ", rate(outcome)), format!("server {server:>6.1} us/op,  client {client:>6.1} us/op "))
    };
    format!("{speed}, CPU: {cpu}, call p50 {:>7.1} us, p99 {:>7.1} us", outcome.p50_us, outcome.p99_us)
}

/// The median of each figure by itself.
fn middle(outcomes: &[Outcome]) -> Outcome {
    let of = |value: fn(&Outcome) -> f64| median(outcomes.iter().map(value).collect());
    let done = of(|outcome| outcome.done as f64);
    Outcome {
        bytes: (done * of(|outcome| outcome.bytes as f64 / outcome.done as f64)) as u64,
        done: done as u64,
        elapsed_s: done / of(rate),
        client_s: done * of(|outcome| outcome.client_s / outcome.done as f64),
        server_s: done * of(|outcome| outcome.server_s / outcome.done as f64),
        p50_us: of(|outcome| outcome.p50_us),
        p99_us: of(|outcome| outcome.p99_us),
    }
}

/// Memory at rest, with many clients, and with many open files; and what a client of many still
/// gets.
fn memory(args: &Args, place: &Path, count: usize) {
    let path = place.join("many");
    fs::create_dir(&path).or_stop(path.display());
    let files = files_of_one(count);
    for number in 0..files {
        fs::write(path.join(format!("file{number:06}")), b"").or_stop("a file to open");
    }
    for (name, server) in servers(args, None) {
        std::thread::sleep(Duration::from_millis(500));
        println!("{name}: idle {:.1} MiB", server.resident_kib() as f64 / 1024.0);
        let mut client = Client::connect(server.port, "bench of memory", 1, 64);
        let handle = client.handle(&["exports-bench", "many"]);
        let before = server.resident_kib();
        let outcome = client.run(&mut Small::new(handle, 0..files, Use::Hold, 16), 16, None, Some(&server));
        let open_kib = (server.resident_kib() - before) as f64 / files as f64;
        println!("{name}: {files} open files, {open_kib:.2} KiB each, {:.1} us of CPU an OPEN", outcome.server_s * 1e6 / files as f64);
    }
    // Anew: descriptors of open files and of connections come out of one limit.
    for (name, server) in servers(args, None) {
        let mut client = Client::connect(server.port, "bench of memory", 1, 64);
        let handle = client.handle(&["exports-bench", "many"]);
        let (before, start, cpu) = (server.resident_kib(), Instant::now(), server.cpu_ever());
        let clients = idle::connect(server.port, count);
        let (each_kib, used) = ((server.resident_kib() - before) as f64 / count as f64, server.cpu_ever() - cpu);
        println!(
            "{name}: {count} clients with a session each, 64 at a time, connected in {:.1} s, {:.1} us of CPU and {each_kib:.2} KiB each",
            start.elapsed().as_secs_f64(),
            used.as_secs_f64() * 1e6 / count as f64
        );
        let cpu = server.cpu_ever();
        std::thread::sleep(Duration::from_secs(3));
        println!("{name}: with all of them idle {:.2} ms of CPU a second", (server.cpu_ever() - cpu).as_secs_f64() * 1e3 / 3.0);
        let mut work = Getattr { handles: vec![handle], at: 0 };
        let outcome = client.run(&mut work, 16, Some(Duration::from_secs(1)), Some(&server));
        println!("{name}: one client beside them: GETATTR {:.0} op/s, p99 {:.0} us", rate(&outcome), outcome.p99_us);
        println!("{name}: {:.1} MiB in all", server.resident_kib() as f64 / 1024.0);
        drop((client, clients));
    }
}

/// As many files as one client may have open at the server, if fewer: four fifths of a quarter of
/// the limit on descriptors, and the root.
fn files_of_one(count: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    count.min(usize::try_from(limit / 5).unwrap_or(usize::MAX).saturating_sub(1))
}

fn file_system(path: &Path) -> String {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const EXT4_MAGIC: i64 = 0xef53;
    match rustix::fs::statfs(path).map(|found| found.f_type) {
        Ok(TMPFS_MAGIC) => "tmpfs".into(),
        Ok(EXT4_MAGIC) => "ext4".into(),
        Ok(other) => format!("file system {other:#x}"),
        Err(error) => format!("{}: {error}", path.display()),
    }
}
