//! Compares builds of `vouch export` with NFS-Ganesha on one directory, round by round: rate,
//! latency and server CPU under each flavour.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use vouch_bench::case::{Content, Copy, Load, Metric, Order};
use vouch_bench::cpu::ServerCpu;
use vouch_bench::nfs::{NfsOptions, NfsSubject};
use vouch_bench::runner::PlannedCase;
use vouch_bench::subject::{MountOptions, MountSubject};
use vouch_bench::target::{NfsTarget, Sec};
use vouch_bench::{Case, Run, StopFlag, Subject, report};
use vouch_benches::realm::{self, Realm};
use vouch_benches::servers::{EXPORT, Proofs, Server};
use vouch_benches::tls_servers::Certificates;
use vouch_benches::{OrExit as _, bench};

#[derive(Parser)]
#[command(about = "Compare builds of vouch export with one another and with NFS-Ganesha")]
struct Args {
    /// A vouch program, with a label as LABEL=PATH; may be repeated. The first is the baseline.
    #[arg(long, value_name = "[LABEL=]PATH", default_value = "target/release/vouch")]
    vouch: Vec<String>,
    /// Directory to export. The benchmark works in a new directory below it.
    #[arg(long)]
    dir: PathBuf,
    /// Rounds after the warm-up.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Seconds of each measurement without a fixed size.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// TCP connections of the client.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Size of the large file, MiB.
    #[arg(long, default_value_t = 512)]
    file_mib: u64,
    /// Number of small files.
    #[arg(long, default_value_t = 10_000)]
    files: u64,
    /// Threads of NFS-Ganesha 15, `ganesha.nfsd` in PATH; 0 is its default. Without it, Ganesha does
    /// not run.
    #[arg(long)]
    ganesha_threads: Option<usize>,
    /// A further server that runs already, by its port on this machine; may be repeated.
    #[arg(long, value_name = "LABEL=PORT", value_parser = running)]
    server: Vec<(String, u16)>,
    /// A directory that is used without a server, for example the exported one; may be repeated.
    /// fio reads and writes it, by way of the page cache.
    #[arg(long, value_name = "LABEL=DIR", value_parser = mounted)]
    mount: Vec<(String, PathBuf)>,
    /// Measure only cases whose name contains this text; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Flavours. For Kerberos flavours the run starts a KDC.
    #[arg(long, value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    /// Encryption type of the Kerberos sessions.
    #[arg(long, default_value = "aes256-cts-hmac-sha1-96")]
    enctype: String,
    /// Export with `async`: replies do not wait until names and attributes are durable, as with
    /// Ganesha.
    #[arg(long)]
    r#async: bool,
    /// Also measure each build with an audit trail of every operation.
    #[arg(long)]
    audited: bool,
    /// Measure memory with this many idle clients instead of speed.
    #[arg(long, value_name = "CLIENTS")]
    memory: Option<usize>,
    /// Write the record to this file, for `vouch bench report` and `vouch bench compare`.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    let realm =
        args.sec.iter().any(|sec| sec.service().is_some()).then(|| Realm::enter(&args.enctype));
    let certificates = args.sec.iter().any(|sec| sec.uses_tls()).then(Certificates::new);
    let proofs = Proofs { realm: realm.as_ref(), certificates: certificates.as_ref() };
    let servers = start(&args, proofs);
    if let Some(clients) = args.memory {
        servers.iter().for_each(|(label, server)| memory(label, server, &args, clients));
        return;
    }
    let mut whole: Option<Run> = None;
    for &sec in &args.sec {
        let connect = |(label, server): &(String, Server)| -> Box<dyn Subject> {
            let options = options(
                format!("{label} {sec}"),
                server.port,
                Some(server.cpu()),
                sec,
                1,
                args.connections,
            );
            let tls = certificates.as_ref().filter(|_| sec.uses_tls()).map(Certificates::client);
            let options = NfsOptions { tls, ..options };
            Box::new(
                NfsSubject::connect(options, &StopFlag::default())
                    .or_exit(format!("{label}, sec={sec}")),
            )
        };
        let running = args
            .server
            .iter()
            .map(|(label, port)| connect_running(label, *port, sec, args.connections));
        let mounts = args.mount.iter().map(|(label, directory)| open_mount(label, directory));
        let mut bench =
            bench(mounts.chain(servers.iter().map(connect)).chain(running).collect(), args.rounds);
        let outcome = bench.run_all(&plan(&args, sec));
        let run = bench.finish(&outcome);
        match &mut whole {
            None => whole = Some(run),
            Some(whole) => whole.absorb(run),
        }
    }
    let Some(run) = whole else { return };
    print!("{}", report::table(&run));
    if let Some(file) = &args.json {
        fs::write(file, run.to_json()).or_exit(file.display());
    }
}

fn start(args: &Args, proofs: Proofs<'_>) -> Vec<(String, Server)> {
    let mut servers = Vec::new();
    for build in &args.vouch {
        let (label, program) = build.split_once('=').unwrap_or(("vouch", build));
        let start =
            |audited| Server::vouch(Path::new(program), &args.dir, !args.r#async, proofs, audited);
        servers.push((label.to_owned(), start(false)));
        if args.audited {
            servers.push((format!("{label} audited"), start(true)));
        }
    }
    if let Some(threads) = args.ganesha_threads {
        servers.push(("ganesha".to_owned(), Server::ganesha(&args.dir, threads, proofs)));
    }
    servers
}

fn running(text: &str) -> Result<(String, u16), String> {
    let (label, port) = text.split_once('=').ok_or("write LABEL=PORT")?;
    Ok((label.to_owned(), port.parse().map_err(|_| "the port is no number")?))
}

fn mounted(text: &str) -> Result<(String, PathBuf), String> {
    let (label, directory) = text.split_once('=').ok_or("write LABEL=DIR")?;
    Ok((label.to_owned(), directory.into()))
}

fn connect_running(label: &str, port: u16, sec: Sec, connections: usize) -> Box<dyn Subject> {
    let options = options(format!("{label} {sec}"), port, None, sec, 1, connections);
    Box::new(NfsSubject::connect(options, &StopFlag::default()).or_exit(label))
}

fn open_mount(label: &str, directory: &Path) -> Box<dyn Subject> {
    let (label, directory) = (label.to_owned(), directory.to_owned());
    let options = MountOptions {
        label,
        directory,
        warm: true,
        alone: false,
        server_cpu: None,
        client_cpu: None,
        not_empty: true,
    };
    Box::new(MountSubject::begin(options, &StopFlag::default()).or_exit("open a mount"))
}

fn options(
    label: String,
    port: u16,
    server_cpu: Option<ServerCpu>,
    sec: Sec,
    sessions: usize,
    connections: usize,
) -> NfsOptions {
    NfsOptions {
        label,
        target: NfsTarget { host: "127.0.0.1".into(), port, path: vec![EXPORT.into()] },
        sec,
        service: Some(realm::HOST_BASED.into()),
        tls: None,
        sessions,
        connections,
        slots: SLOTS,
        server_cpu,
        not_empty: true,
    }
}

/// The panel names the flavour, so that ratios compare servers under the same flavour.
fn plan(args: &Args, sec: Sec) -> Vec<PlannedCase> {
    let seconds = args.seconds;
    let load = |order, block, read_percent, depth| {
        Case::Load(Load {
            order,
            block,
            read_percent,
            depth,
            rate: None,
            seconds,
            file_len: args.file_mib << 20,
        })
    };
    let copy =
        Copy { files: args.files, len: 5000, content: Content::Random, streams: 16, depth: 1 };
    let cases = [
        ("read 1 MiB, depth 1", load(Order::Sequential, 1 << 20, 100, 1)),
        ("read 1 MiB, depth 16", load(Order::Sequential, 1 << 20, 100, 16)),
        ("write 1 MiB, depth 1", load(Order::Sequential, 1 << 20, 0, 1)),
        ("write 1 MiB, depth 16", load(Order::Sequential, 1 << 20, 0, 16)),
        ("random read 4 KiB, depth 1", load(Order::Random, 4096, 100, 1)),
        ("random read 4 KiB, depth 64", load(Order::Random, 4096, 100, 64)),
        ("random write 4 KiB, depth 64", load(Order::Random, 4096, 0, 64)),
        ("random read 64 KiB, depth 64", load(Order::Random, 64 << 10, 100, 64)),
        ("random write 64 KiB, depth 64", load(Order::Random, 64 << 10, 0, 64)),
        ("create, depth 16", Case::Put(copy)),
        ("read back, depth 16", Case::Get(copy)),
        ("create, append, remove, depth 64", Case::Changes { files: args.files, depth: 64 }),
        ("getattr, depth 16", Case::Getattr { depth: 16, seconds }),
        ("getattr, depth 64", Case::Getattr { depth: 64, seconds }),
    ];
    let planned = |(name, case): (&str, Case)| {
        let metric =
            if matches!(case, Case::Load(_)) { case.metric() } else { Metric::OperationsPerSecond };
        PlannedCase { metric, ..PlannedCase::new("exports", sec.to_string(), name, case) }
    };
    let is_wanted = |(name, _): &(&str, Case)| {
        args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()))
    };
    cases.into_iter().filter(is_wanted).map(planned).collect()
}

/// Before and after `clients` clients connect.
fn memory(label: &str, server: &Server, args: &Args, clients: usize) {
    let before = server.resident_kib();
    let options =
        options(label.to_owned(), server.port, Some(server.cpu()), args.sec[0], clients, 1);
    let mut subject = NfsSubject::connect(options, &StopFlag::default()).or_exit(label);
    let after = server.resident_kib();
    let each = after.saturating_sub(before) as f64 / clients as f64;
    println!(
        "{label}: {before} KiB without clients, {after} KiB with {clients} idle clients, {each:.2} KiB each"
    );
    subject.clean().or_exit(label);
}

/// Enough for the deepest case.
const SLOTS: usize = 64;
